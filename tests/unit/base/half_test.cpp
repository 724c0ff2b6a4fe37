#include "base/half.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stagecoach {
namespace {

/// The value by the definition of binary16, in double, where every step is exact.
double defined_value(std::uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  return exponent == 0 ? sign * std::ldexp(fraction, -24)
                       : sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Half, WidensEveryValueExactly) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const double expected = defined_value(half.bits);
    const float got = to_float(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(got), expected) << bits;
      EXPECT_EQ(std::signbit(got), (bits & 0x8000) != 0) << bits;
    }
  }
}

TEST(Half, NarrowsEveryHalfToItself) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const float value = to_float(half);
    if (std::isnan(value)) {
      const auto back = to_half(value).bits;
      EXPECT_EQ(back & 0x7e00, 0x7e00) << bits;  // NaN, and quiet
      EXPECT_EQ(back & 0x8000, bits & 0x8000) << bits;
    } else {
      EXPECT_EQ(to_half(value).bits, bits);
    }
  }
}

/// Between each two neighbours: just below the middle, the middle (to even), just above it.
TEST(Half, RoundsToNearestAndTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const double below = defined_value(static_cast<std::uint16_t>(bits));
    // What follows the largest finite half would be 2^16, were there another exponent.
    const double above =
        bits + 1 == 0x7c00 ? 65536.0 : defined_value(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((below + above) / 2);  // exact: 12 bits suffice
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      const float signed_middle = sign != 0 ? -middle : middle;
      ASSERT_EQ(to_half(signed_middle).bits, sign | even) << bits;
      ASSERT_EQ(to_half(std::nextafter(signed_middle, 0.0f)).bits, sign | bits) << bits;
      ASSERT_EQ(to_half(std::nextafter(signed_middle, signed_middle * 2)).bits, sign | (bits + 1))
          << bits;
    }
  }
}

TEST(Half, OverflowsToInfinityAndUnderflowsToZero) {
  EXPECT_EQ(to_half(65519.0f).bits, 0x7bff);
  EXPECT_EQ(to_half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_half(-1e30f).bits, 0xfc00);
  EXPECT_EQ(to_half(std::numeric_limits<float>::infinity()).bits, 0x7c00);
  EXPECT_EQ(to_half(std::ldexp(1.0f, -25)).bits, 0x0000);
  EXPECT_EQ(to_half(std::numeric_limits<float>::denorm_min()).bits, 0x0000);
  EXPECT_EQ(to_half(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
}

TEST(Half, WidensBfloat16) {
  EXPECT_EQ(bfloat16_to_float(0x3f80), 1.0f);
  EXPECT_EQ(bfloat16_to_float(0xc040), -3.0f);
  EXPECT_EQ(bfloat16_to_float(0x0001), std::ldexp(1.0f, -133));
  EXPECT_TRUE(std::isinf(bfloat16_to_float(0x7f80)));
  EXPECT_TRUE(std::isnan(bfloat16_to_float(0x7fc0)));
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) std::uint16_t narrow_in_hardware(float value) {
  return static_cast<std::uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
}

/// Every 1021st float, NaNs too.
TEST(Half, NarrowsAsTheProcessorDoes) {
  if (!__builtin_cpu_supports("f16c")) {
    GTEST_SKIP() << "this processor has no F16C";
  }
  for (std::uint64_t bits = 0; bits < (1ull << 32); bits += 1021) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    ASSERT_EQ(to_half(value).bits, narrow_in_hardware(value)) << std::hex << bits;
  }
}
#endif

}  // namespace
}  // namespace stagecoach
