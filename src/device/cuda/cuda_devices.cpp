#include "device/cuda/cuda_devices.hpp"

#include <cuda_runtime_api.h>

#include <array>

#include "base/error.hpp"
#include "device/cuda/check.hpp"

namespace stagecoach::device {
namespace {

using cuda::check_cuda;

constexpr const char* kCount = "count the GPUs (cudaGetDeviceCount)";

// A machine without a GPU or with a driver that is too old is a normal one, not a failure.
bool means_no_device(cudaError_t status) {
  return status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice;
}

CudaDeviceInfo describe(int index) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, index),
             "describe a GPU (cudaGetDeviceProperties)");
  std::array<char, 32> pci_bus_id{};
  check_cuda(
      cudaDeviceGetPCIBusId(pci_bus_id.data(), static_cast<int>(pci_bus_id.size()) - 1, index),
      "tell a GPU's place (cudaDeviceGetPCIBusId)");
  return {.index = index,
          .name = properties.name,
          .memory_bytes = properties.totalGlobalMem,
          .compute_major = properties.major,
          .compute_minor = properties.minor,
          .pci_bus_id = pci_bus_id.data()};
}

}  // namespace

int cuda_device_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (means_no_device(status)) {
    return 0;
  }
  check_cuda(status, kCount);
  return count;
}

std::vector<CudaDeviceInfo> cuda_devices() {
  std::vector<CudaDeviceInfo> devices;
  const int count = cuda_device_count();
  for (int index = 0; index < count; ++index) {
    devices.push_back(describe(index));
  }
  return devices;
}

std::size_t cuda_free_memory(int index) {
  cuda::use_device(index);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "tell its free memory (cudaMemGetInfo)");
  return free_bytes;
}

std::string cuda_status() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (means_no_device(status)) {
    return fmt::format("no usable GPU: {}; see whether nvidia-smi finds one",
                       cudaGetErrorString(status));
  }
  check_cuda(status, kCount);
  if (count == 0) {
    return "no usable GPU: CUDA sees none (is CUDA_VISIBLE_DEVICES empty?)";
  }
  int runtime = 0;
  check_cuda(cudaRuntimeGetVersion(&runtime), "tell its version (cudaRuntimeGetVersion)");
  return fmt::format("CUDA {}.{}, {} GPU{}", runtime / 1000, runtime % 1000 / 10, count,
                     count == 1 ? "" : "s");
}

}  // namespace stagecoach::device
