#include "model/narrow.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

namespace stagecoach::model {
namespace {

struct Narrowed {
  std::vector<Half> values;
  NarrowCounts counts;
};

template <typename Stored>
Narrowed narrow(NumberType type, const std::vector<Stored>& stored) {
  Narrowed result;
  result.values.resize(stored.size());
  result.counts = narrow_to_half(type, std::as_bytes(std::span(stored)), result.values);
  return result;
}

TEST(Narrow, RoundsToNearestEven) {
  // Halfway cases between neighbours of 1 (step 2^-10), of the smallest normal, and subnormals.
  const auto result =
      narrow<float>(NumberType::f32, {1 + 0x1p-11f, 1 + 0x3p-11f, 1 + 0x1.002p-11f, -2.0f, 0x1p-25f,
                                      0x1.8p-24f, 0x1.000002p-25f, 65504.0f, 65519.996f, -0.0f});
  const std::vector<std::uint16_t> expected = {0x3c00, 0x3c02, 0x3c01, 0xc000, 0x0000,
                                               0x0002, 0x0001, 0x7bff, 0x7bff, 0x8000};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(result.values[i].bits, expected[i]) << i;
  }
  EXPECT_EQ(result.counts.nan + result.counts.infinite + result.counts.overflowed, 0);
}

TEST(Narrow, TellsOverflowFromInfinityAndNan) {
  const auto infinity = std::numeric_limits<float>::infinity();
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  const auto result =
      narrow<float>(NumberType::f32, {65520.0f, -1e30f, infinity, -infinity, nan, 1.0f});
  EXPECT_EQ(result.counts.overflowed, 2);
  EXPECT_EQ(result.counts.largest, 1e30f);
  EXPECT_EQ(result.counts.infinite, 2);
  EXPECT_EQ(result.counts.nan, 1);
  EXPECT_EQ(result.values[2].bits, 0x7c00);
  EXPECT_EQ(result.values[3].bits, 0xfc00);
  EXPECT_GT(result.values[4].bits & 0x7fff, 0x7c00);
}

TEST(Narrow, ReadsBfloat16) {
  // 1, -2, 3.140625, 2^-20 and the largest bfloat16.
  const auto result =
      narrow<std::uint16_t>(NumberType::bf16, {0x3f80, 0xc000, 0x4049, 0x3580, 0x7f7f});
  EXPECT_EQ(result.values[0].bits, 0x3c00);
  EXPECT_EQ(result.values[1].bits, 0xc000);
  EXPECT_EQ(result.values[2].bits, 0x4248);
  EXPECT_EQ(result.values[3].bits, 0x0010);
  EXPECT_EQ(result.counts.overflowed, 1);
}

TEST(Narrow, CopiesF16BitForBit) {
  const std::vector<std::uint16_t> stored = {0x0001, 0x7bff, 0x7c00, 0xfc00, 0x7c01, 0xfe55};
  const auto result = narrow(NumberType::f16, stored);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    EXPECT_EQ(result.values[i].bits, stored[i]) << i;
  }
  EXPECT_EQ(result.counts.infinite, 2);
  EXPECT_EQ(result.counts.nan, 2);
  EXPECT_EQ(result.counts.overflowed, 0);
}

}  // namespace
}  // namespace stagecoach::model
