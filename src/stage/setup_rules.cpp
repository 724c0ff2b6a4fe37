#include "stage/setup_rules.hpp"

#include <algorithm>

#include "offload/kv_pages.hpp"

namespace stagecoach::stage {

JobDemand demand_of(const std::vector<SequenceLength>& requests, const BatchShape& batch) {
  JobDemand demand;
  std::vector<std::int64_t> pages;
  pages.reserve(requests.size());
  for (const auto& request : requests) {
    demand.longest_prompt = std::max(demand.longest_prompt, request.fed_prompt);
    pages.push_back(offload::pages_for(request.stored_tokens, batch.page_tokens));
  }
  std::sort(pages.rbegin(), pages.rend());
  pages.resize(std::min(pages.size(), static_cast<std::size_t>(batch.places())));
  for (const auto count : pages) {
    demand.kv.longest_pages = std::max(demand.kv.longest_pages, count);
    demand.kv.wanted_pages += count;
  }
  return demand;
}

device::ScratchShape scratch_shape(const StageShape& shape, std::int64_t longest_pages) {
  const auto& spec = shape.spec;
  const auto& batch = shape.batch;
  return {.max_in_features = std::max(spec.hidden, spec.ffn),
          .head_dim = spec.head_dim,
          .page_tokens = batch.page_tokens,
          .vocab = spec.vocab,
          .sparse_tokens = batch.attention_sparsity < 1 ? longest_pages * batch.page_tokens : 0,
          .heads = spec.heads,
          .kv_heads = spec.kv_heads,
          .max_rows = batch.max_batch_rows(),
          .max_sequences = batch.gpu_batch_size,
          .longest_pages = longest_pages};
}

bool hidden_on_device(const BatchShape& batch, const Percent& percent) {
  const auto batches = batch.num_gpu_batches;
  return offload::split_by_shares(batches, percent.hidden()).device == batches;
}

}  // namespace stagecoach::stage
