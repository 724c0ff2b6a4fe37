#include "plan/stage_program.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace stagecoach::plan {
namespace {

constexpr std::size_t kLots = std::size_t{1} << 50;

/// Nothing takes time or memory yet.
LinearStage empty_stage(const TiersInUse& tiers) {
  LinearStage stage;
  stage.regime.tiers = tiers;
  stage.budgets = {.device = kLots, .cpu = kLots, .disk = kLots, .pinned = 0, .together = 0};
  return stage;
}

LinearStage::Linear& seconds(LinearStage& stage, stage::Resource resource) {
  return stage.seconds[static_cast<std::size_t>(resource)];
}

TEST(Solve, WithoutOtherTiersAnswersTheOnlyPlacement) {
  auto stage = empty_stage({});
  seconds(stage, stage::Resource::compute).constant = 3;
  const auto result = solve(stage);
  ASSERT_TRUE(result);
  EXPECT_DOUBLE_EQ(result->visit_seconds, 3);
  EXPECT_EQ(to_percent(result->fractions), (stage::Percent{100, 0, 100, 0, 100, 0}));
}

TEST(Solve, BalancesWhatTwoTiersTake) {
  // 10 s from DRAM and 30 s from disk for all of the weights, at the same time; none fits on the
  // device. By hand: 10 c = 30 d, c + d = 1, so c = 3/4 and it takes 7.5 s.
  auto stage = empty_stage({.weights_cpu = true, .weights_disk = true});
  seconds(stage, stage::Resource::h2d).by_fraction[1] = 10;
  seconds(stage, stage::Resource::disk_read).by_fraction[2] = 30;
  stage.memory_bytes[0].by_fraction[0] = 100;
  stage.budgets.device = 0;
  const auto result = solve(stage);
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->visit_seconds, 7.5, 1e-6);
  EXPECT_NEAR(result->fractions.weights[1], 0.75, 1e-6);
  EXPECT_NEAR(result->fractions.weights[2], 0.25, 1e-6);
}

TEST(Solve, SharesTheDeviceBetweenWeightsAndCache) {
  // Weights of 100 bytes take 4 s from DRAM, a cache of 100 bytes 12 s over the same bus; the
  // device has 100 bytes. By hand: the cache wins.
  auto stage = empty_stage({.weights_cpu = true, .cache_cpu = true});
  seconds(stage, stage::Resource::h2d).by_fraction[1] = 4;
  seconds(stage, stage::Resource::h2d).by_fraction[4] = 12;
  stage.memory_bytes[0].by_fraction[0] = 100;
  stage.memory_bytes[0].by_fraction[3] = 100;
  stage.budgets.device = 100;
  const auto result = solve(stage);
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->visit_seconds, 4, 1e-6);
  EXPECT_NEAR(result->fractions.weights[1], 1, 1e-6);
  EXPECT_NEAR(result->fractions.cache[0], 1, 1e-6);
}

TEST(Solve, MovesNothingThatNeedNotMove) {
  // Compute takes longer than all copies: any placement is as fast, and memory is plenty.
  auto stage = empty_stage(
      {.weights_cpu = true, .weights_disk = true, .cache_cpu = true, .cache_disk = true});
  seconds(stage, stage::Resource::compute).constant = 100;
  for (const std::size_t column : {1, 2, 4, 5}) {
    seconds(stage, stage::Resource::h2d).by_fraction[column] = 1;
  }
  const auto result = solve(stage);
  ASSERT_TRUE(result);
  EXPECT_EQ(to_percent(result->fractions), (stage::Percent{100, 0, 100, 0, 100, 0}));
}

TEST(Solve, OfAHostCountsBothPartsOfItsMemory) {
  auto stage = empty_stage({.weights_cpu = true, .weights_disk = true});
  seconds(stage, stage::Resource::disk_read).by_fraction[2] = 10;
  stage.memory_bytes[0].by_fraction[0] = 100;
  stage.memory_bytes[1].by_fraction[1] = 100;
  stage.budgets.together = 60;
  const auto result = solve(stage);
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->fractions.weights[2], 0.4, 1e-6);
  EXPECT_NEAR(result->visit_seconds, 4, 1e-6);
}

TEST(Solve, WithoutOverlapAddsUp) {
  auto stage = empty_stage({.weights_cpu = true});
  seconds(stage, stage::Resource::compute).constant = 5;
  seconds(stage, stage::Resource::h2d).by_fraction[1] = 3;
  stage.memory_bytes[0].by_fraction[0] = 100;
  stage.budgets.device = 0;
  EXPECT_NEAR(solve(stage)->visit_seconds, 5, 1e-6);
  stage.overlap = false;
  EXPECT_NEAR(solve(stage)->visit_seconds, 8, 1e-6);
}

TEST(Solve, MindsPoolsAndChains) {
  auto stage = empty_stage({});
  seconds(stage, stage::Resource::compute).constant = 5;
  stage.pools[0].constant = 6;
  EXPECT_NEAR(solve(stage)->visit_seconds, 6, 1e-9);
  stage.chain.constant = 7;
  EXPECT_NEAR(solve(stage)->visit_seconds, 7, 1e-9);
}

TEST(Solve, AnswersNothingWhereNothingFits) {
  auto stage = empty_stage({.weights_cpu = true});
  stage.memory_bytes[0] = {.constant = 10, .by_fraction = {100}};
  stage.memory_bytes[1].by_fraction[1] = 100;
  stage.budgets.device = 60;
  stage.budgets.cpu = 49;
  EXPECT_FALSE(solve(stage));
  stage.budgets.cpu = 50;
  EXPECT_TRUE(solve(stage));
}

TEST(Solve, StaysWithinItsRegime) {
  auto stage = empty_stage({.cache_cpu = true, .cache_disk = true});
  seconds(stage, stage::Resource::h2d).by_fraction[4] = 1;
  seconds(stage, stage::Resource::disk_read).by_fraction[5] = 1;
  stage.regime.cache_outside = {0.5, 1};
  stage.regime.cache_disk = {0.25, 0.75};
  const auto result = solve(stage);
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->fractions.cache[0], 0.5, 1e-6);
  EXPECT_NEAR(result->fractions.cache[2], 0.25, 1e-6);
}

/// Positive coefficients, slower tiers slower, budgets that bind somewhere.
LinearStage random_stage(std::mt19937& random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  auto stage = empty_stage(
      {.weights_cpu = true, .weights_disk = true, .cache_cpu = true, .cache_disk = true});
  for (auto& resource : stage.seconds) {
    resource.constant = uniform(random);
    for (const std::size_t column : {1, 2, 4, 5}) {
      resource.by_fraction[column] = uniform(random) < 0.5 ? 0 : 4 * uniform(random);
    }
  }
  for (std::size_t tier = 0; tier < 3; ++tier) {
    stage.memory_bytes[tier].constant = 1000 * uniform(random);
    stage.memory_bytes[tier].by_fraction[tier] = 1e5 * uniform(random);
    stage.memory_bytes[tier].by_fraction[3 + tier] = 1e5 * uniform(random);
  }
  const auto budget = [&] { return static_cast<std::size_t>(2000 + 1.5e5 * uniform(random)); };
  stage.budgets.device = budget();
  stage.budgets.cpu = budget();
  stage.budgets.disk = budget();
  return stage;
}

TEST(Solve, IsNoSlowerThanAFineGrid) {
  std::mt19937 random(7);
  int fitting = 0;
  for (int problem = 0; problem < 60; ++problem) {
    const auto stage = random_stage(random);
    constexpr int kSteps = 12;
    double best = std::numeric_limits<double>::infinity();
    const auto share = [](int part) { return static_cast<double>(part) / kSteps; };
    for (int a = 0; a <= kSteps; ++a) {
      for (int b = 0; a + b <= kSteps; ++b) {
        for (int c = 0; c <= kSteps; ++c) {
          for (int d = 0; c + d <= kSteps; ++d) {
            Fractions fractions;
            fractions.weights = {share(a), share(b), share(kSteps - a - b)};
            fractions.cache = {share(c), share(d), share(kSteps - c - d)};
            if (stage.fits(fractions)) {
              best = std::min(best, stage.visit_seconds(fractions));
            }
          }
        }
      }
    }
    const auto result = solve(stage);
    if (!result) {
      EXPECT_TRUE(std::isinf(best)) << problem;
      continue;
    }
    ++fitting;
    EXPECT_LE(result->visit_seconds, best * 1.002) << problem;  // the preference's part
    // And nothing is made up: the answer is in the budgets, and its time its own.
    auto roomy = stage;
    roomy.budgets.device += 1;
    roomy.budgets.cpu += 1;
    roomy.budgets.disk += 1;
    EXPECT_TRUE(roomy.fits(result->fractions)) << problem;
  }
  EXPECT_GT(fitting, 20);
}

TEST(Percent, KeepsZeroAndAll) {
  Fractions fractions;
  fractions.weights = {1.0 / 3, 0, 2.0 / 3};
  fractions.cache = {0.2, 0.8, 0};
  fractions.hidden = {0, 0, 1};
  const auto percent = to_percent(fractions);
  EXPECT_DOUBLE_EQ(percent.weights_device, 33.333);
  EXPECT_EQ(percent.weights_cpu, 0);
  EXPECT_DOUBLE_EQ(percent.cache_device + percent.cache_cpu, 100);
  EXPECT_EQ(percent.hidden_device, 0);
  EXPECT_EQ(percent.hidden_cpu, 0);
  const auto back = to_fractions(percent);
  EXPECT_NEAR(back.weights[2], 2.0 / 3, 1e-5);
  EXPECT_NEAR(back.cache[2], 0, 1e-12);
}

}  // namespace
}  // namespace stagecoach::plan
