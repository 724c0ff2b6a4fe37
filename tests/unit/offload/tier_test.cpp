#include "offload/tier.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace stagecoach::offload {
namespace {

/// Shares as they come from percentages, every five per cent.
std::vector<TierShares> many_shares() {
  std::vector<TierShares> shares;
  for (int device = 0; device <= 100; device += 5) {
    for (int cpu = 0; device + cpu <= 100; cpu += 5) {
      shares.push_back({device / 100.0, cpu / 100.0});
    }
  }
  return shares;
}

std::string text_of(const TierShares& shares) {
  return "device " + std::to_string(shares.device) + " cpu " + std::to_string(shares.cpu);
}

TEST(Tier, TheRestIsOnDisk) {
  EXPECT_EQ(TierShares{}.disk(), 0);
  const TierShares shares{0.25, 0.5};
  EXPECT_EQ(shares.of(Tier::device), 0.25);
  EXPECT_EQ(shares.of(Tier::cpu), 0.5);
  EXPECT_EQ(shares.of(Tier::disk), 0.25);
}

TEST(SplitByShares, KnownSplits) {
  EXPECT_EQ(split_by_shares(10, {1, 0}), (TierCounts{10, 0, 0}));
  EXPECT_EQ(split_by_shares(10, {0.2, 0.5}), (TierCounts{2, 5, 3}));
  EXPECT_EQ(split_by_shares(4, {0, 0.25}), (TierCounts{0, 1, 3}));
  EXPECT_EQ(split_by_shares(0, {0.3, 0.3}), (TierCounts{0, 0, 0}));
  EXPECT_EQ(split_by_shares(1, {0.4, 0.3}), (TierCounts{1, 0, 0})) << "to the largest share";
}

TEST(SplitByShares, EveryTierIsWithinOneOfItsShareAndTheSumIsExact) {
  for (const auto& shares : many_shares()) {
    SCOPED_TRACE(text_of(shares));
    for (std::int64_t total = 0; total < 200; ++total) {
      const auto counts = split_by_shares(total, shares);
      ASSERT_EQ(counts.total(), total);
      for (const auto tier : kTiers) {
        ASSERT_GE(counts.of(tier), 0);
        ASSERT_LE(std::abs(static_cast<double>(counts.of(tier)) -
                           shares.of(tier) * static_cast<double>(total)),
                  1)
            << total;
      }
    }
  }
}

TEST(SplitByShares, NothingGoesWhereTheShareIsZero) {
  for (const auto& shares : many_shares()) {
    SCOPED_TRACE(text_of(shares));
    for (std::int64_t total = 0; total < 50; ++total) {
      const auto counts = split_by_shares(total, shares);
      ASSERT_TRUE(shares.device > 0 || counts.device == 0) << total;
      ASSERT_TRUE(shares.cpu > 0 || counts.cpu == 0) << total;
      ASSERT_TRUE(shares.disk() > 1e-9 || counts.disk == 0) << total;
    }
  }
}

TEST(SplitByShares, RoundingErrorsOfPercentagesAreNoShare) {
  const TierShares shares{33.333 / 100, 66.667 / 100};
  EXPECT_EQ(split_by_shares(1'000'000'000, shares).disk, 0);
}

TEST(SplitByShares, MoreThingsNeverMeanFewerInSomeTier) {
  for (const auto& shares : many_shares()) {
    auto last = split_by_shares(0, shares);
    for (std::int64_t total = 1; total < 200; ++total) {
      const auto counts = split_by_shares(total, shares);
      for (const auto tier : kTiers) {
        ASSERT_GE(counts.of(tier), last.of(tier))
            << text_of(shares) << " tier " << to_string(tier) << " of " << total;
      }
      last = counts;
    }
  }
}

TEST(SplitByShares, LargeTotalsKeepTheirSum) {
  constexpr unsigned kSeed = 5;
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 1000; ++i) {
    const auto total = static_cast<std::int64_t>(random() >> 20);
    const auto device = static_cast<double>(random() % 1001) / 1000;
    const TierShares shares{device, (1 - device) * static_cast<double>(random() % 1001) / 1000};
    ASSERT_EQ(split_by_shares(total, shares).total(), total) << text_of(shares);
  }
}

}  // namespace
}  // namespace stagecoach::offload
