#include "model/sampling.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

namespace stagecoach::model {
namespace {

// Computed by an independent implementation (Python's xxhash and integers).
TEST(SamplingTest, KeysAndUniformsAreThoseOfTheDefinition) {
  struct Golden {
    std::uint64_t seed;
    std::string id;
    std::uint64_t key;
    std::array<double, 3> at_0_1_511;
  };
  const Golden goldens[] = {
      {0,
       "a",
       0xbedc0ddf8dc52ce4,
       {0x1.3a0e579f12800p-4, 0x1.3f381ec6874a1p-1, 0x1.2e83e85f3a8c8p-1}},
      {0,
       "",
       0x9dc822abc1c5a68e,
       {0x1.bbfa609192708p-3, 0x1.d6a40f7b35a80p-5, 0x1.cb023924ca6f4p-1}},
      {1,
       "a",
       0xc5c3988789cbb4d9,
       {0x1.27a5d1a514cc0p-3, 0x1.25a3f2c09fc22p-2, 0x1.3049e2a213887p-1}},
      {std::numeric_limits<std::uint64_t>::max(),
       "request-17",
       0x9701bdb238582d6e,
       {0x1.6a814c43d8cacp-2, 0x1.03756612c9288p-2, 0x1.0d4cebcaec65cp-1}},
      {42,
       "日本",
       0x8f9002c212ede03f,
       {0x1.e0608bf39227cp-1, 0x1.d8605858d6872p-1, 0x1.8ed1abbdbe57bp-1}},
      {7,
       std::string(300, 'x'),
       0xd3032b56881b0fc4,
       {0x1.1d9227a743798p-3, 0x1.6b2ab8b0ef7a4p-2, 0x1.38f198b175756p-1}},
  };
  for (const auto& golden : goldens) {
    const auto key = sampling_key(golden.seed, golden.id);
    EXPECT_EQ(key, golden.key) << golden.id;
    EXPECT_EQ(uniform_at(key, 0), golden.at_0_1_511[0]) << golden.id;
    EXPECT_EQ(uniform_at(key, 1), golden.at_0_1_511[1]) << golden.id;
    EXPECT_EQ(uniform_at(key, 511), golden.at_0_1_511[2]) << golden.id;
  }
}

/// Chi-square of draws over equal bins; its mean is kBins - 1 = 255, its deviation 22.6.
class ChiSquare {
 public:
  static constexpr int kBins = 256;

  void add(double value) {
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    ++counts_[static_cast<std::size_t>(value * kBins)];
    ++draws_;
  }
  [[nodiscard]] double value() const {
    const double expected = static_cast<double>(draws_) / kBins;
    double sum = 0;
    for (const auto count : counts_) {
      const double difference = static_cast<double>(count) - expected;
      sum += difference * difference / expected;
    }
    return sum;
  }

 private:
  std::array<std::int64_t, kBins> counts_{};
  std::int64_t draws_ = 0;
};

constexpr double kChiSquareLow = 255 - 7 * 22.6;
constexpr double kChiSquareHigh = 255 + 7 * 22.6;

TEST(SamplingTest, DrawsAreUniformAlongASequence) {
  ChiSquare chi_square;
  const auto key = sampling_key(1, "sequence");
  for (std::int64_t position = 0; position < 200000; ++position) {
    chi_square.add(uniform_at(key, position));
  }
  EXPECT_GT(chi_square.value(), kChiSquareLow);
  EXPECT_LT(chi_square.value(), kChiSquareHigh);
}

TEST(SamplingTest, DrawsAreUniformAcrossRequestsAndSeeds) {
  ChiSquare by_id;
  ChiSquare by_seed;
  for (int i = 0; i < 100000; ++i) {
    by_id.add(uniform_at(sampling_key(0, std::to_string(i)), 17));
    by_seed.add(uniform_at(sampling_key(static_cast<std::uint64_t>(i), "one"), 17));
  }
  EXPECT_GT(by_id.value(), kChiSquareLow);
  EXPECT_LT(by_id.value(), kChiSquareHigh);
  EXPECT_GT(by_seed.value(), kChiSquareLow);
  EXPECT_LT(by_seed.value(), kChiSquareHigh);
}

TEST(SamplingTest, SeedsRequestsAndPositionsAllDiffer) {
  std::set<double> draws;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (int id = 0; id < 20; ++id) {
      for (std::int64_t position = 0; position < 20; ++position) {
        draws.insert(uniform_at(sampling_key(seed, std::to_string(id)), position));
      }
    }
  }
  EXPECT_EQ(draws.size(), 20u * 20u * 20u);
}

}  // namespace
}  // namespace stagecoach::model
