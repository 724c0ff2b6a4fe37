#include "device/cuda/cuda_devices.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace stagecoach::test {
namespace {

TEST(CudaDevices, ListAgreesWithCountAndStatus) {
  const auto devices = device::cuda_devices();
  const auto status = device::cuda_status();
  ASSERT_EQ(static_cast<int>(devices.size()), device::cuda_device_count());
  EXPECT_EQ(status.find('\n'), std::string::npos);
  if (devices.empty()) {
    EXPECT_THROW(static_cast<void>(device::cuda_free_memory(0)), Error);
    EXPECT_TRUE(status.find("built without CUDA") == 0 || status.find("no usable GPU") == 0)
        << status;
  } else {
    EXPECT_EQ(status.find("CUDA "), 0u) << status;
    for (const auto& device : devices) {
      EXPECT_FALSE(device.name.empty());
      EXPECT_GT(device.memory_bytes, 0u);
      EXPECT_GE(device.compute_major, 7);
      EXPECT_FALSE(device.pci_bus_id.empty());
      EXPECT_LE(device::cuda_free_memory(device.index), device.memory_bytes);
    }
  }
}

}  // namespace
}  // namespace stagecoach::test
