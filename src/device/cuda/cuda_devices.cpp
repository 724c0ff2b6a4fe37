#include "device/cuda/cuda_devices.hpp"

#include <cuda_runtime_api.h>

#include "base/error.hpp"

namespace stagecoach::device {
namespace {

void check_cuda(cudaError_t status, const char* call) {
  if (status != cudaSuccess) {
    throw Error(fmt::format("{} failed: {} (CUDA error {})", call, cudaGetErrorString(status),
                            static_cast<int>(status)));
  }
}

// A machine without a GPU or with a driver that is too old is a normal one, not a failure.
bool means_no_device(cudaError_t status) {
  return status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice;
}

}  // namespace

int cuda_device_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (means_no_device(status)) {
    return 0;
  }
  check_cuda(status, "cudaGetDeviceCount");
  return count;
}

std::vector<CudaDeviceInfo> cuda_devices() {
  std::vector<CudaDeviceInfo> devices;
  const int count = cuda_device_count();
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    devices.push_back(
        {index, properties.name, properties.totalGlobalMem, properties.major, properties.minor});
  }
  return devices;
}

std::string cuda_status() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (means_no_device(status)) {
    return fmt::format("no usable GPU: {}; see whether nvidia-smi finds one",
                       cudaGetErrorString(status));
  }
  check_cuda(status, "cudaGetDeviceCount");
  int runtime = 0;
  check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return fmt::format("CUDA {}.{}, {} GPU{}", runtime / 1000, runtime % 1000 / 10, count,
                     count == 1 ? "" : "s");
}

}  // namespace stagecoach::device
