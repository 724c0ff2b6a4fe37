#include "comm/nccl_check.hpp"

#include "base/error.hpp"

namespace stagecoach::comm {
namespace {

const char* name_of(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
      return "ncclUnhandledCudaError";
    case ncclSystemError:
      return "ncclSystemError";
    case ncclInternalError:
      return "ncclInternalError";
    case ncclInvalidArgument:
      return "ncclInvalidArgument";
    case ncclInvalidUsage:
      return "ncclInvalidUsage";
    case ncclRemoteError:
      return "ncclRemoteError";
    case ncclInProgress:
      return "ncclInProgress";
    default:
      return "unknown result";
  }
}

}  // namespace

void check_nccl(ncclResult_t result, const std::string& action) {
  if (result != ncclSuccess) {
    throw NcclError(fmt::format("NCCL could not {}: {} ({})", action, ncclGetErrorString(result),
                                name_of(result)));
  }
}

void check_cuda(cudaError_t status, const std::string& action) {
  if (status != cudaSuccess) {
    throw CudaError(fmt::format("CUDA could not {}: {} (error {})", action,
                                cudaGetErrorString(status), static_cast<int>(status)));
  }
}

}  // namespace stagecoach::comm
