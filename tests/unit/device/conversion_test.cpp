#include <bit>
#include <cmath>

#include "device/host/kernels.hpp"
#include "unit/device/device_cases.hpp"

namespace stagecoach::test {
namespace {

using device::attention_kernels;
using device::linear_kernels;
using device::supported_isas;

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

// base/half.hpp is itself tested against the definition of binary16.
TEST(Conversion, WidensEveryHalfExactly) {
  std::vector<Half> halves;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    halves.push_back({static_cast<std::uint16_t>(bits)});
  }
  for (const auto isa : supported_isas()) {
    std::vector<float> wide(halves.size());
    linear_kernels(isa).widen(halves.data(), static_cast<std::int64_t>(halves.size()), wide.data());
    for (std::size_t i = 0; i < halves.size(); ++i) {
      const float expected = to_float(halves[i]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(wide[i])) << i;
      } else {
        EXPECT_EQ(bits_of(wide[i]), bits_of(expected)) << i;
      }
    }
  }
}

TEST(Conversion, WidensWithZerosBehindOddCounts) {
  const auto halves = random_halves(40, 1);
  for (const auto isa : supported_isas()) {
    for (std::int64_t count = 1; count <= 40; ++count) {
      std::vector<Half> exact(halves.begin(), halves.begin() + count);
      std::vector<float> wide(48, 7.0f);
      linear_kernels(isa).widen(exact.data(), count, wide.data());
      for (std::int64_t i = 0; i < 48; ++i) {
        const auto k = static_cast<std::size_t>(i);
        const float behind = i < device::padded_to_lanes(count) ? 0.0f : 7.0f;
        EXPECT_EQ(wide[k], i < count ? to_float(halves[k]) : behind) << count << " " << i;
      }
    }
  }
}

std::vector<float> interesting_floats() {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float exact = to_float({static_cast<std::uint16_t>(bits)});
    if (std::isnan(exact)) {
      continue;
    }
    // Each half, the tie between it and the next one, and both neighbours of the tie.
    const auto next = to_float({static_cast<std::uint16_t>(bits + 1)});
    const float tie = std::isfinite(next) ? exact + (next - exact) / 2 : exact;
    for (const float value : {exact, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f)}) {
      values.push_back(value);
    }
  }
  for (const float value : {65519.996f, 65520.0f, -65520.0f, 1e30f, 1e-30f, 1e-42f, 5.9604645e-8f,
                            2.9802322e-8f, 2.9802326e-8f, INFINITY, -INFINITY}) {
    values.push_back(value);
  }
  std::mt19937 generator(3);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(generator()));
    if (!std::isnan(value)) {
      values.push_back(value);
    }
  }
  return values;
}

TEST(Conversion, NarrowsToNearestEven) {
  const auto values = interesting_floats();
  const auto count = static_cast<std::int64_t>(values.size());
  for (const auto isa : supported_isas()) {
    std::vector<Half> halves(values.size());
    attention_kernels(isa).store_run(device::KvType::f16, values.data(), count,
                                     {nullptr, 0, reinterpret_cast<std::byte*>(halves.data()), 0});
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(halves[i].bits, to_half(values[i]).bits) << values[i];
    }
  }
}

TEST(Conversion, NarrowsNanToNan) {
  const std::vector<float> values(17, NAN);
  for (const auto isa : supported_isas()) {
    std::vector<Half> halves(values.size());
    attention_kernels(isa).store_run(device::KvType::f16, values.data(), 17,
                                     {nullptr, 0, reinterpret_cast<std::byte*>(halves.data()), 0});
    for (const auto half : halves) {
      EXPECT_TRUE(std::isnan(to_float(half)));
    }
  }
}

}  // namespace
}  // namespace stagecoach::test
