#pragma once

#include <cuda_runtime_api.h>

namespace stagecoach::device::cuda {

/// Throws CudaError ("CUDA could not <action>: <CUDA's own text> (error 35)") unless `status` is
/// cudaSuccess; OutOfMemory for cudaErrorMemoryAllocation.
void check_cuda(cudaError_t status, const char* action);

}  // namespace stagecoach::device::cuda
