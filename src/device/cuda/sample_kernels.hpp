#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/cuda/sample_records.hpp"

namespace stagecoach::device::cuda {

struct SampleLaunch {
  const float* logits = nullptr;  ///< [rows, vocab]
  std::int64_t vocab = 0;
  const RowToSample* specs = nullptr;
  std::int64_t count = 0;  ///< of specs
  SampledRow* sampled = nullptr;
  ListedToken* listed = nullptr;
};

/// Enqueues the kernel of sample_kernels.cu; all pointers are the device's.
void launch_sample(cudaStream_t stream, const SampleLaunch& launch);

}  // namespace stagecoach::device::cuda
