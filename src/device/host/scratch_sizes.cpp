#include "device/host/scratch_sizes.hpp"

#include <algorithm>

#include "device/host/kernels.hpp"
#include "device/host/linear.hpp"
#include "device/host/sample.hpp"
#include "device/host/scratch.hpp"

namespace stagecoach::device {

std::int64_t host_worker_floats(const ScratchShape& shape) {
  return std::max({linear_worker_floats(),
                   attention_scratch_floats(shape.head_dim, shape.page_tokens, shape.sparse_tokens),
                   sample_worker_floats(shape.vocab)});
}

std::int64_t host_shared_floats(const ScratchShape& shape) {
  return linear_shared_floats(shape.max_in_features);
}

std::size_t host_scratch_bytes(const ScratchShape& shape, int threads) {
  return Scratch::size_bytes(host_worker_floats(shape), threads, host_shared_floats(shape));
}

}  // namespace stagecoach::device
