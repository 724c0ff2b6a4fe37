#include "plan/linearize.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plan/stage_estimate.hpp"
#include "unit/plan/machines.hpp"

namespace stagecoach::plan {
namespace {

using stage::Resource;

constexpr std::size_t kLots = std::size_t{1} << 55;
constexpr std::int64_t kLayers = 4;
constexpr std::int64_t kHidden = 2048;

StageCase case_on(const NodeProfile& profile, bool packed, bool cpu_attention) {
  stage::StageShape shape{
      .spec = testing::model_of(kLayers, kHidden),
      .contents = {.first_layer = 0, .layers = kLayers, .embedding = true, .head = true},
      .batch = {.gpu_batch_size = 16, .num_gpu_batches = 4, .prefill_piece = 128}};
  if (packed) {
    shape.weights.layers = {Packing::int4, 64};
    shape.batch.kv_format = device::KvType::int4;
  }
  stage::Policy policy;
  policy.offload_dir = "/scratch";
  policy.cpu_attention = cpu_attention ? stage::Switch::on : stage::Switch::off;
  const auto pages = (512 + 32 + 15) / 16;
  return {
      .shape = shape,
      .policy = policy,
      .profile = profile,
      .options = options_for(profile, stage::ScheduleKind::rolling, true),
      .demand = {.longest_pages = pages, .wanted_pages = 64 * pages},
      .link = profile.link,
      .visits = {
          {.prompt_rows = 128, .prompt_position = 192, .decoding = 60, .decode_position = 528}}};
}

/// Shares within the regime.
Fractions random_within(const Regime& regime, std::mt19937& random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  const auto between = [&](double low, double high) {
    return low + (high - low) * uniform(random);
  };
  const auto point = [](double outside, double disk) {
    return std::array<double, 3>{1 - outside, outside - disk, disk};
  };
  Fractions fractions;
  const auto& tiers = regime.tiers;
  if (tiers.weights()) {
    const auto outside = between(0.01, 1);
    const auto disk = !tiers.weights_disk  ? 0
                      : !tiers.weights_cpu ? outside
                                           : between(0.01, outside);
    fractions.weights = point(outside, disk);
  }
  if (tiers.cache()) {
    double disk = 0;
    if (tiers.cache_disk) {
      disk = between(std::max(0.1 * regime.cache_disk.high, regime.cache_disk.low),
                     regime.cache_disk.high);
    }
    const auto least = std::max({regime.cache_outside.low, disk, 0.01});
    if (least > regime.cache_outside.high) {
      return random_within(regime, random);
    }
    const auto outside = tiers.cache_cpu ? between(least, regime.cache_outside.high) : disk;
    fractions.cache = point(outside, disk);
  }
  if (tiers.hidden_disk || tiers.hidden_cpu) {
    fractions.hidden = tiers.hidden_disk ? point(1, 1) : point(1, 0);
  }
  return fractions;
}

stage::MemoryReport report_of(const StageCase& stage, const Fractions& fractions) {
  auto policy = stage.policy;
  policy.percent = to_percent(fractions);
  policy.weight_buffers = 2;
  const auto scratch = scratch_for(stage.profile, stage.shape, stage.demand.longest_pages);
  return stage::plan_stage(
             stage.shape, policy, stage.options, stage.demand,
             {.device = kLots, .cpu = kLots, .disk = kLots, .pinned = kLots, .together = 0},
             scratch)
      .memory;
}

void expect_exact_memory(const StageCase& stage, std::mt19937& random) {
  // Shares are rounded to whole pages: one a layer, in two pools.
  const auto rounding =
      2.0 * kLayers * static_cast<double>(stage::kv_page_bytes(stage.shape, true));
  for (const int hidden : {0, 1, 2}) {
    const TiersInUse all{.weights_cpu = true,
                         .weights_disk = true,
                         .cache_cpu = true,
                         .cache_disk = true,
                         .hidden_cpu = hidden == 1,
                         .hidden_disk = hidden == 2};
    for (const auto& regime : regimes_of(stage, all)) {
      LinearStage linear;
      fill_memory(linear, stage, regime);
      for (int draw = 0; draw < 4; ++draw) {
        const auto fractions = random_within(regime, random);
        const auto report = report_of(stage, fractions);
        for (const auto tier : offload::kTiers) {
          const auto exact = static_cast<double>(report.total_bytes(tier));
          const auto mine = linear.memory_bytes[static_cast<std::size_t>(tier)].at(fractions);
          EXPECT_NEAR(mine, exact, 0.01 * exact + rounding)
              << to_string(tier) << " " << stage::format_percent(to_percent(fractions));
        }
      }
    }
  }
}

TEST(LinearMemory, IsTheReportsToAPercent) {
  std::mt19937 random(11);
  for (const auto& profile : {testing::gpu_node(), testing::host_node()}) {
    for (const bool packed : {false, true}) {
      for (const bool cpu_attention : {false, true}) {
        expect_exact_memory(case_on(profile, packed, cpu_attention), random);
      }
    }
  }
}

TEST(LinearMemory, HasARegimeForEveryPlacement) {
  const auto profile = testing::gpu_node();
  const auto stage = case_on(profile, false, false);
  const TiersInUse all{
      .weights_cpu = true, .weights_disk = true, .cache_cpu = true, .cache_disk = true};
  const auto regimes = regimes_of(stage, all);
  for (int outside = 0; outside <= 100; outside += 5) {
    for (int disk = 0; disk <= outside; disk += 5) {
      const auto holds = [](const Range& range, int percent) {
        return percent >= 100 * range.low - 1e-9 && percent <= 100 * range.high + 1e-9;
      };
      EXPECT_TRUE(std::any_of(
          regimes.begin(), regimes.end(),
          [&](const Regime& regime) {
            const auto& tiers = regime.tiers;
            return (tiers.cache() ? holds(regime.cache_outside, outside) : outside == 0) &&
                   (tiers.cache_disk ? holds(regime.cache_disk, disk) : disk == 0);
          }))
          << outside << " " << disk;
    }
  }
}

double seconds_of(const LinearStage& linear, Resource resource, const Fractions& fractions) {
  return linear.seconds[static_cast<std::size_t>(resource)].at(fractions);
}

TEST(LinearSeconds, CountTheBytesOfWeights) {
  // By hand: a layer has 12 h^2 + 13 h numbers of two bytes.
  auto profile = testing::gpu_node();
  profile.step = {};
  const auto stage = case_on(profile, false, false);
  const TiersInUse tiers{.weights_cpu = true, .weights_disk = true};
  const auto linear = linearize(stage, {.tiers = tiers, .cache_outside = {}, .cache_disk = {}});
  Fractions fractions;
  fractions.weights = {0.25, 0.25, 0.5};
  const double layer = 2.0 * (12 * kHidden * kHidden + 13 * kHidden);
  const auto bytes = kLayers * layer;
  // What comes from disk is copied to the GPU from its staging.
  EXPECT_NEAR(seconds_of(linear, Resource::disk_read, fractions), 0.5 * bytes / 2e9,
              0.01 * bytes / 2e9);
  EXPECT_NEAR(seconds_of(linear, Resource::h2d, fractions), 0.75 * bytes / 12e9,
              0.01 * bytes / 12e9);
  fractions.weights = {1, 0, 0};
  EXPECT_NEAR(seconds_of(linear, Resource::h2d, fractions), 0, 1e-9);
}

TEST(LinearSeconds, CountTheBytesOfTheCache) {
  auto profile = testing::gpu_node();
  profile.step = {};
  const auto stage = case_on(profile, false, false);
  const auto regimes = regimes_of(stage, {.cache_cpu = true});
  const auto linear = linearize(stage, regimes.back());
  Fractions fractions;
  fractions.cache = {0.5, 0.5, 0};
  // 60 sequences of 529 tokens and a prompt's of 192 + 128 pass over the bus, in whole pages (34
  // and 20); K and V of a token are 2 * 2048 numbers of two bytes.
  const double page = 16 * 2 * 2 * kHidden;
  const double bytes = 0.5 * kLayers * page * (60 * 34 + 20);
  EXPECT_NEAR(seconds_of(linear, Resource::h2d, fractions), bytes / 12e9, 0.05 * bytes / 12e9);
}

TEST(LinearSeconds, GrowWithTheLayers) {
  const auto profile = testing::gpu_node();
  const auto stage = case_on(profile, false, true);
  const TiersInUse tiers{.weights_cpu = true, .cache_cpu = true};
  const VisitSeconds seconds(stage, tiers);
  LinearStage four;
  LinearStage eight;
  LinearStage twelve;
  seconds.fill(four, 4);
  seconds.fill(eight, 8);
  seconds.fill(twelve, 12);
  Fractions fractions;
  fractions.weights = {0.5, 0.5, 0};
  fractions.cache = {0, 1, 0};
  const auto compute = [&](const LinearStage& linear) {
    return seconds_of(linear, Resource::compute, fractions);
  };
  EXPECT_NEAR(compute(twelve) - compute(eight), compute(eight) - compute(four), 1e-9);
  // Embedding and head are there once.
  EXPECT_LT(compute(eight), 2 * compute(four));
  EXPECT_GT(compute(eight), 1.2 * compute(four));
  EXPECT_GT(seconds_of(four, Resource::cpu_compute, fractions), 0);
}

TEST(LinearSeconds, OfOneGpuBatchAreAChain) {
  const auto profile = testing::gpu_node();
  auto stage = case_on(profile, false, true);
  const TiersInUse tiers{.cache_cpu = true};
  Fractions fractions;
  fractions.cache = {0, 1, 0};
  const auto chain = [&](std::int64_t batches) {
    stage.shape.batch.gpu_batch_size = 64 / batches;
    stage.shape.batch.num_gpu_batches = batches;
    LinearStage linear;
    VisitSeconds(stage, tiers).fill(linear, kLayers);
    return std::pair{linear.chain.at(fractions),
                     seconds_of(linear, Resource::compute, fractions) +
                         seconds_of(linear, Resource::cpu_compute, fractions)};
  };
  const auto [one, of_one] = chain(1);
  EXPECT_GT(one, 0.9 * of_one);  // attention on the CPU is waited for
  const auto [two, of_two] = chain(2);
  EXPECT_LT(two, 0.75 * of_two);
}

}  // namespace
}  // namespace stagecoach::plan
