#pragma once

#include "cuda_runtime_api.h"
#include "support/cuda_standin/standin.hpp"

namespace cuda_standin {

Settings settings();

/// What a call of CUDA's API has to give, and the thread's last error with it.
cudaError_t give(cudaError_t error);

/// Counts a call. Not cudaSuccess: what it must give, because the settings say so.
cudaError_t begin_call(const char* name, cudaError_t failing_with = cudaErrorUnknown);

/// The index of the calling thread's device.
int current_device();

}  // namespace cuda_standin
