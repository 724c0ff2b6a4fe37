#include "job/stage_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "comm/loopback_transport.hpp"
#include "device/cuda/cuda_devices.hpp"

namespace stagecoach::job {
namespace {

using ::testing::HasSubstr;
using Kind = DeviceChoice::Kind;

TEST(StageDevice, IsReadFromItsName) {
  EXPECT_EQ(parse_device("auto", "--device").kind, Kind::automatic);
  EXPECT_EQ(parse_device("host", "--device").kind, Kind::host);
  EXPECT_EQ(parse_device("cuda", "--device").kind, Kind::cuda);
  EXPECT_EQ(parse_device("cuda", "--device").index, DeviceChoice::kByRank);
  EXPECT_EQ(parse_device("cuda:12", "--device").kind, Kind::cuda);
  EXPECT_EQ(parse_device("cuda:12", "--device").index, 12);
  EXPECT_THROW(parse_device("cuda:12,", "--device"), ConfigError);
}

TEST(StageDevice, WithoutAGpuIsTheHostUnlessAGpuWasAskedFor) {
  if (device::cuda_device_count() > 0) {
    GTEST_SKIP() << "this machine has a GPU";
  }
  AbortSignal abort;
  comm::LoopbackHub hub(1, {}, abort);
  const auto transport = hub.transport(0);
  EXPECT_FALSE(find_device("host", *transport).cuda);
  EXPECT_FALSE(find_device("auto", *transport).cuda);
  for (const auto* text : {"cuda", "cuda:0"}) {
    try {
      find_device(text, *transport);
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("--device ") + text + ": "));
      EXPECT_THAT(error.what(), HasSubstr(device::cuda_status()));
    }
  }
}

}  // namespace
}  // namespace stagecoach::job
