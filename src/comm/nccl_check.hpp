#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>

namespace stagecoach::comm {

/// Throws NcclError ("NCCL could not <action>: <NCCL's own text> (ncclSystemError)") unless
/// `result` is ncclSuccess.
void check_nccl(ncclResult_t result, const std::string& action);

/// The same for NCCL's streams and events, as CudaError.
void check_cuda(cudaError_t status, const std::string& action);

}  // namespace stagecoach::comm
