#include "device/cuda/check.hpp"

#include "base/error.hpp"

namespace stagecoach::device::cuda {

void check_cuda(cudaError_t status, const char* action) {
  if (status == cudaSuccess) {
    return;
  }
  const auto text = fmt::format("CUDA could not {}: {} (error {})", action,
                                cudaGetErrorString(status), static_cast<int>(status));
  if (status == cudaErrorMemoryAllocation) {
    throw OutOfMemory(text);
  }
  throw CudaError(text);
}

void use_device(int index) { check_cuda(cudaSetDevice(index), "use the GPU (cudaSetDevice)"); }

}  // namespace stagecoach::device::cuda
