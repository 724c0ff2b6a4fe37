#pragma once

// What device code is written with: see docs/design.md, "CUDA on the CPU", for what a kernel must
// keep to so that the tests can run it without a GPU.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#ifndef __CUDACC__
#include <dynamic_shared.hpp>  // of the tests' stand-in
#endif

namespace stagecoach::device::cuda {

inline constexpr int kWarpThreads = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffu;

/// The block's dynamic shared memory, 16-byte aligned.
template <typename T>
__device__ inline T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];
  return reinterpret_cast<T*>(dynamic_shared_bytes);
#else
  return static_cast<T*>(cuda_standin::dynamic_shared_bytes());
#endif
}

}  // namespace stagecoach::device::cuda
