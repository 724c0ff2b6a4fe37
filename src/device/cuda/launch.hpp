#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "device/cuda/check.hpp"

namespace stagecoach::device::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  ///< dynamic; more than 48 KiB must have been allowed before
};

/// Enqueues `kernel` on `stream`; an empty grid is nothing to do. Arguments are converted to the
/// kernel's parameters, which are copied: no pointer into the host's memory but pinned memory.
/// Throws CudaError naming `name`.
template <typename... Params, typename... Args>
void launch(cudaStream_t stream, const char* name, const LaunchShape& shape,
            void (*kernel)(Params...), const Args&... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) {
    return;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), name);
}

}  // namespace stagecoach::device::cuda
