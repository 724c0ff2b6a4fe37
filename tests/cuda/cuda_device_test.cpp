#include <gmock/gmock.h>

#include "base/error.hpp"
#include "cuda/small_case.hpp"
#include "device/cuda/cuda_devices.hpp"
#include "device/host/host_device.hpp"

namespace stagecoach::test {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

std::string refusal_of(const device::CudaDeviceOptions& options) {
  AbortSignal abort;
  try {
    const auto device = device::make_cuda_device(options, abort);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

TEST(CudaDevice, DescribesItself) {
  const CudaCase here(kSmallShape, kSmallMemory);
  EXPECT_THAT(here->description(), MatchesRegex("cuda:0, .+, sm_[0-9]+, [0-9.]+ [GT]iB"));
  EXPECT_EQ(here->instruction_set(), "CUDA, f16 products with f32 sums");
  EXPECT_FALSE(here->host_addressable());
  EXPECT_GE(here->packed_product_rows(), 1);
  EXPECT_TRUE(here->notes().empty());
}

TEST(CudaDevice, RefusesAGpuThatIsNotThere) {
  EXPECT_THAT(refusal_of({.index = 1000, .memory_bytes = 0}),
              MatchesRegex("--device cuda:1000: there (is|are) [0-9]+ GPUs?, counted from 0"));
  EXPECT_THAT(refusal_of({.index = -1, .memory_bytes = 0}), HasSubstr("--device cuda:-1: "));
}

TEST(CudaDevice, RefusesMoreMemoryThanIsFree) {
  EXPECT_THAT(refusal_of({.index = 0, .memory_bytes = std::size_t{1} << 50}),
              MatchesRegex("cannot take .+ of cuda:0's memory: .+ of .+ are free.*"));
}

TEST(CudaDevice, TakesItsMemoryAtOnce) {
  const auto free_before = device::cuda_free_memory(0);
  const CudaCase here(kSmallShape, kSmallMemory);
  EXPECT_LE(device::cuda_free_memory(0) + kSmallMemory, free_before);
}

TEST(CudaDevice, CountsBuffersAndScratch) {
  AbortSignal abort;
  const auto device = device::make_cuda_device({.index = 0, .memory_bytes = kSmallMemory}, abort);
  EXPECT_EQ(device->allocated_bytes(), 0u);
  const auto scratch = device->scratch_bytes(kSmallShape);
  device->reserve_scratch(kSmallShape);
  EXPECT_EQ(device->allocated_bytes(), scratch);
  EXPECT_GT(device->host_scratch_bytes(kSmallShape), 0u);
  {
    const auto buffer = device->allocate(12'345, "a test");
    EXPECT_EQ(device->allocated_bytes(), scratch + 12'345);
    EXPECT_EQ(buffer.size_bytes(), 12'345u);
  }
  EXPECT_EQ(device->allocated_bytes(), scratch);
  EXPECT_EQ(device->peak_bytes(), scratch + 12'345);
  const auto rest = kSmallMemory - scratch;
  EXPECT_THROW(static_cast<void>(device->allocate(rest + 1, "too much")), OutOfMemory);
  static_cast<void>(device->allocate(rest, "all that is left"));
}

TEST(CudaDevice, PlansWithoutMemory) {
  AbortSignal abort;
  const auto device = device::make_cuda_device({.index = 0, .memory_bytes = 0}, abort);
  EXPECT_GT(device->host_scratch_bytes(kSmallShape), 0u);
  EXPECT_THROW(static_cast<void>(device->allocate(1, "a test")), OutOfMemory);
}

TEST(CudaDevice, ChecksWhatItIsAskedFor) {
  const CudaCase here(kSmallShape, kSmallMemory);
  auto& stream = here.stream();
  EXPECT_THROW(here->layer_norm(stream, {.rows = 1, .width = 0}), InternalError);
  EXPECT_THROW(here->linear(stream, {.rows = -1}), InternalError);
  EXPECT_THROW(here->linear(stream, {.rows = 1,
                                     .in_features = kSmallShape.max_in_features + 1,
                                     .out_features = 1,
                                     .out_stride = 1}),
               InternalError);
  EXPECT_THROW(here->embed(stream, {.tokens = {1, 2}, .positions = {1}}), InternalError);
  EXPECT_THROW(here->sample(stream, {.vocab = 10, .specs = {{.target = 10}}}), InternalError);
  AbortSignal abort;
  const auto of_the_host = device::make_host_stream("host", abort);
  std::byte byte{};
  EXPECT_THROW(here->copy_to_host(*of_the_host, &byte, &byte, 1), InternalError);
}

TEST(CudaDevices, AreDescribed) {
  const auto devices = device::cuda_devices();
  ASSERT_FALSE(devices.empty());
  for (const auto& info : devices) {
    EXPECT_THAT(info.pci_bus_id,
                MatchesRegex("[0-9a-fA-F]+:[0-9a-fA-F][0-9a-fA-F]:[0-9a-fA-F][0-9a-fA-F]\\.[0-9]"));
    EXPECT_LE(device::cuda_free_memory(info.index), info.memory_bytes);
  }
}

}  // namespace
}  // namespace stagecoach::test
