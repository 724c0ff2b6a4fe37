#include "stage/schedule.hpp"

#include <utility>

#include "stage/visit_builder.hpp"

namespace stagecoach::stage {

std::vector<GpuBatch> cut_into_batches(const std::vector<VisitEntry>& entries,
                                       std::int64_t gpu_batch_size) {
  std::vector<GpuBatch> batches;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto number = entries[i].slot / gpu_batch_size;
    if (batches.empty() || batches.back().number != number) {
      batches.push_back(
          {.number = number, .first_entry = static_cast<std::int64_t>(i), .first_row = row});
    }
    const auto rows = static_cast<std::int64_t>(entries[i].tokens.size());
    batches.back().num_entries += 1;
    batches.back().num_rows += rows;
    row += rows;
  }
  return batches;
}

double layer_flops(const model::ModelSpec& spec, std::int64_t rows, std::int64_t attended) {
  return attention_in_flops(spec, rows) + attention_flops(spec, attended) +
         attention_out_flops(spec, rows) + mlp_flops(spec, rows);
}

Scheduler::Scheduler(StagePlan plan, PageRefs page_refs)
    : plan_(std::move(plan)),
      page_refs_(page_refs),
      pages_(plan_.kv.pools, plan_.policy.percent.cache(), plan_.kv.open_slots,
             plan_.shape.batch.page_tokens, plan_.shape.batch.places()) {
  if (!plan_.overlap) {
    dependencies_.serialize();
  }
}

VisitSchedule Scheduler::next(const Visit& visit) { return VisitBuilder(*this, visit).build(); }

void Scheduler::release(const Visit& visit) {
  for (const auto& release : visit.releases) {
    pages_.release(place_of(release.block, release.slot));
  }
}

std::int64_t Scheduler::place_of(std::int32_t block, std::int32_t slot) const {
  return block * plan_.shape.batch.block() + slot;
}

}  // namespace stagecoach::stage
