#pragma once

#include <cstddef>
#include <functional>

#include "cuda_runtime_api.h"

namespace cuda_standin {

struct Grid {
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;
  /// Blocks and threads begin last first: nothing may depend on their order.
  bool backwards = false;
};

/// Runs `body` once for each thread, on this OS thread. std::runtime_error if it throws, or if
/// threads wait for each other for ever.
void run_grid(const Grid& grid, const std::function<void()>& body);

}  // namespace cuda_standin
