#include "cli/batch_options.hpp"

#include "cli/compression_options.hpp"

namespace stagecoach::cli {
namespace {

using Integer = std::int64_t;

constexpr Integer kMost = Integer{1} << 40;

po::typed_value<Integer>* with_default(Integer value) {
  return po::value<Integer>()->default_value(value);
}

}  // namespace

po::options_description batch_options() {
  po::options_description group("Batches");
  group.add_options()("gpu-batch-size", with_default(32), "sequences in one kernel call")(
      "num-gpu-batches", with_default(1), "GPU batches that share a pass over the weights")(
      "inner-iterations", po::value<Integer>(),
      "blocks in flight (1 for one stage, else stages + 1)")(
      "prefill-piece", with_default(512), "prompt tokens that a visit carries at most")(
      "page-tokens", with_default(16), "tokens of a KV page: 16, 32 or 64");
  return group;
}

stage::BatchShape read_batch_shape(const Options& options) {
  stage::BatchShape batch;
  batch.gpu_batch_size = options.integer("gpu-batch-size", 1, kMost);
  batch.num_gpu_batches = options.integer("num-gpu-batches", 1, kMost);
  batch.inner_iterations =
      options.has("inner-iterations") ? options.integer("inner-iterations", 1, kMost) : 0;
  batch.prefill_piece = options.integer("prefill-piece", 1, kMost);
  batch.page_tokens = options.integer("page-tokens", 16, 64);
  batch.kv_format = read_kv_format(options);
  batch.attention_sparsity = read_attention_sparsity(options);
  return batch;
}

}  // namespace stagecoach::cli
