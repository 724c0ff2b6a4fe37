#pragma once

#include <cuda_runtime_api.h>

namespace stagecoach::device::cuda {

/// Throws CudaError ("CUDA could not <action>: <CUDA's own text> (error 35)") unless `status` is
/// cudaSuccess; OutOfMemory for cudaErrorMemoryAllocation.
void check_cuda(cudaError_t status, const char* action);

/// Makes a GPU the calling thread's: the first thing on every thread that calls CUDA, which would
/// otherwise make a context on GPU 0. CudaError.
void use_device(int index);

}  // namespace stagecoach::device::cuda
