#include <gmock/gmock.h>

#include <cstdint>

#include "unit/device/device_cases.hpp"

namespace stagecoach::test {
namespace {

using device::Buffer;
using device::make_host_device;

TEST(HostDevice, AllocatesZeroedPages) {
  const TestDevice device;
  const Buffer buffer = device->allocate(10000, "weights");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0u);
  EXPECT_EQ(buffer.size_bytes(), 10000u);
  for (std::size_t i = 0; i < 10000; ++i) {
    ASSERT_EQ(buffer.data()[i], std::byte{0});
  }
  EXPECT_EQ(device->allocate(0, "nothing").data(), nullptr);
}

TEST(HostDevice, BuffersMove) {
  const TestDevice device;
  Buffer first = device->allocate(100, "a test");
  auto* data = first.data();
  Buffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): the promise of the move
  Buffer third = device->allocate(200, "a test");
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.size_bytes(), 100u);
  data[99] = std::byte{1};
}

TEST(HostDevice, OutOfMemoryNamesThePurpose) {
  const TestDevice device;
  try {
    const auto buffer = device->allocate(std::size_t{1} << 60, "the KV cache");
    FAIL() << "got " << buffer.size_bytes() << " bytes";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the KV cache"));
  }
  EXPECT_NE(device->allocate(1, "still works").data(), nullptr);
}

TEST(HostDevice, CountsWhatBuffersAndScratchHold) {
  AbortSignal abort;
  const auto device = make_host_device({}, abort);
  EXPECT_EQ(device->allocated_bytes(), 0u);
  const device::ScratchShape shape{64, 16, 16, 100};
  device->reserve_scratch(shape);
  const auto scratch = device->scratch_bytes(shape);
  EXPECT_EQ(device->allocated_bytes(), scratch);
  {
    Buffer first = device->allocate(10000, "a test");
    const Buffer second = device->allocate(500, "a test");
    EXPECT_EQ(device->allocated_bytes(), scratch + 10500);
    first = Buffer();
    EXPECT_EQ(device->allocated_bytes(), scratch + 500);
  }
  EXPECT_EQ(device->allocated_bytes(), scratch);
  EXPECT_EQ(device->peak_bytes(), scratch + 10500);
}

TEST(HostDevice, GivesNoMoreThanItsMemory) {
  AbortSignal abort;
  const device::ScratchShape shape{64, 16, 16, 100};
  const auto scratch = make_host_device({}, abort)->scratch_bytes(shape);
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const auto device = make_host_device({.memory_bytes = scratch + 2 * kMiB}, abort);
  device->reserve_scratch(shape);
  const Buffer first = device->allocate(kMiB, "weights");
  {
    const Buffer second = device->allocate(kMiB, "hidden states");
    EXPECT_THROW(device->allocate(1, "more"), OutOfMemory);
  }
  try {
    const Buffer third = device->allocate(kMiB + 1, "the KV cache");
    FAIL() << "got " << third.size_bytes() << " bytes";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the KV cache"));
  }
  EXPECT_EQ(device->allocated_bytes(), scratch + kMiB);
  EXPECT_NE(device->allocate(kMiB, "still works").data(), nullptr);

  const auto small = make_host_device({.memory_bytes = scratch - 1}, abort);
  EXPECT_THROW(small->reserve_scratch(shape), OutOfMemory);
  EXPECT_EQ(small->allocated_bytes(), 0u);
}

TEST(HostDevice, SaysWhetherTheHostMayTouchItsMemory) {
  AbortSignal abort;
  EXPECT_TRUE(make_host_device({}, abort)->host_addressable());
  EXPECT_FALSE(make_host_device({.host_addressable = false}, abort)->host_addressable());
}

TEST(HostDevice, RefusesUnknownInstructionSetsAndNoThreads) {
  AbortSignal abort;
  EXPECT_THROW(make_host_device({1, "neon"}, abort), ConfigError);
  EXPECT_THROW(make_host_device({0, "auto"}, abort), ConfigError);
  const auto names = isa_names();
  if (std::find(names.begin(), names.end(), "avx512") == names.end()) {
    EXPECT_THROW(make_host_device({1, "avx512"}, abort), ConfigError);
  }
}

TEST(HostDevice, DescribesItself) {
  for (const auto& isa : isa_names()) {
    const TestDevice device(isa, 2);
    EXPECT_EQ(device->description(), "host, " + isa + ", 2 threads");
  }
  // All register widths give the same bits (the invariance tests), so ranks may mix them.
  const TestDevice narrow("avx2");
  const TestDevice widest("auto");
  EXPECT_EQ(narrow->instruction_set(), widest->instruction_set());
  EXPECT_THAT(widest->instruction_set(), testing::HasSubstr("FMA"));
}

TEST(HostDevice, ScratchGrowsWithThreadsAndShape) {
  const TestDevice one("auto", 1);
  const TestDevice three("auto", 3);
  const device::ScratchShape small{768, 64, 16, 1000};
  EXPECT_GT(three->scratch_bytes(small), 2 * one->scratch_bytes(small));
  EXPECT_GT(one->scratch_bytes({16384, 64, 16, 1000}), one->scratch_bytes(small));
  EXPECT_GT(one->scratch_bytes({768, 64, 16, 1000000}), one->scratch_bytes(small));
  EXPECT_EQ(one->scratch_bytes(small) % 4096, 0u);
}

TEST(HostDevice, RefusesOperationsThatNeedMoreScratch) {
  AbortSignal abort;
  const auto device = make_host_device({}, abort);
  const auto stream = device->create_stream("test");
  std::vector<float> floats(64);
  std::vector<Half> halves(64);
  device::LinearArgs args;
  args.x = floats.data();
  args.weight = halves.data();
  args.out = floats.data() + 32;
  args.rows = 1;
  args.in_features = 32;
  args.out_features = args.out_stride = 1;
  EXPECT_THROW(device->linear(*stream, args), InternalError);
  device->reserve_scratch({31, 8, 16, 10});
  EXPECT_THROW(device->linear(*stream, args), InternalError);
  args.in_features = 31;
  device->linear(*stream, args);
  stream->record().wait();
}

// Two streams of one device share its threads and scratch.
TEST(HostDevice, StreamsOfOneDeviceDoNotDisturbEachOther) {
  const TestDevice device("auto", 2);
  const auto other = device->create_stream("other");
  const std::int64_t in = 300;
  const auto x = random_floats(40 * in, 1);
  const auto weight = random_halves(50 * in, 2);
  const auto product = [&](device::Stream& stream, std::vector<float>& out, std::int64_t rows) {
    out.resize(static_cast<std::size_t>(rows * 50));
    device->linear(stream, {x.data(), weight.data(), nullptr, out.data(), rows, in, 50, 50,
                            device::Epilogue::none});
  };
  std::vector<float> expected;
  product(device.stream(), expected, 40);
  device.stream().record().wait();
  std::vector<std::vector<float>> outs(40);
  for (std::size_t i = 0; i < outs.size(); ++i) {
    product(i % 2 == 0 ? device.stream() : *other, outs[i], i % 3 == 0 ? 5 : 40);
  }
  device.stream().record().wait();
  other->record().wait();
  for (const auto& out : outs) {
    EXPECT_TRUE(
        same_bits(std::span<const float>(out), std::span<const float>(expected).first(out.size())));
  }
}

}  // namespace
}  // namespace stagecoach::test
