#include "base/error.hpp"
#include "device/cuda/cuda_devices.hpp"

namespace stagecoach::device {

int cuda_device_count() { return 0; }

std::vector<CudaDeviceInfo> cuda_devices() { return {}; }

std::size_t cuda_free_memory(int /*index*/) {
  throw ConfigError("--device cuda: " + cuda_status());
}

std::string cuda_status() {
  return "built without CUDA: configure with -DSTAGECOACH_WITH_CUDA=ON (CUDA 13 or newer)";
}

}  // namespace stagecoach::device
