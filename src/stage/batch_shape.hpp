#pragma once

#include <cstdint>

#include "device/device.hpp"

namespace stagecoach::stage {

/// When the places of a block take new sequences.
enum class Admission {
  rolling,  ///< as soon as one is free; prompts come in pieces
  whole     ///< when all are free; prompts come whole, in the block's first visit
};

/// How sequences are grouped, the same on every stage (FlexGen's words).
struct BatchShape {
  std::int64_t gpu_batch_size = 32;   ///< sequences in one kernel call
  std::int64_t num_gpu_batches = 1;   ///< GPU batches that share one pass over the layers' weights
  std::int64_t inner_iterations = 1;  ///< blocks in flight
  std::int64_t prefill_piece = 512;   ///< prompt tokens that one visit carries at most
  std::int64_t page_tokens = 16;      ///< tokens of a KV page: 16, 32 or 64
  device::KvFormat kv_format{};
  double attention_sparsity = 1;  ///< share of the earlier positions whose values decoded rows read
  Admission admission = Admission::rolling;
  std::int64_t longest_prompt = 0;  ///< with `whole`: tokens; decides how large a visit can be

  /// Places of one block.
  [[nodiscard]] std::int64_t block() const { return gpu_batch_size * num_gpu_batches; }
  /// Places of the whole job: sequences that are alive at once, at most.
  [[nodiscard]] std::int64_t places() const { return block() * inner_iterations; }
  /// Rows (tokens) of one visit, at most: a decoded token for every place and a piece of prompt; or
  /// a whole prompt for every place.
  [[nodiscard]] std::int64_t max_visit_rows() const {
    return admission == Admission::whole ? block() * longest_prompt : block() + prefill_piece;
  }
  /// Rows of one GPU batch, at most.
  [[nodiscard]] std::int64_t max_batch_rows() const {
    return admission == Admission::whole ? gpu_batch_size * longest_prompt
                                         : gpu_batch_size + prefill_piece;
  }
};

/// Blocks that keep `stages` stages busy: one a stage and, where there is a wire, one on the way
/// back.
constexpr std::int64_t default_inner_iterations(int stages) { return stages == 1 ? 1 : stages + 1; }

}  // namespace stagecoach::stage
