#include "base/error.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_devices.hpp"

namespace stagecoach::device {

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& /*options*/,
                                         AbortSignal& /*abort*/) {
  throw ConfigError("--device cuda: " + cuda_status());
}

}  // namespace stagecoach::device
