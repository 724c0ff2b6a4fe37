#include "stage/memory_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "base/error.hpp"
#include "stage/memory_areas.hpp"
#include "stage/partition.hpp"
#include "support/named_flags.hpp"
#include "unit/stage/specs.hpp"

namespace stagecoach::stage {
namespace {

using offload::Tier;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kImage = 34 * kPage;  // of one layer of small_spec
constexpr std::size_t kLots = std::size_t{1} << 50;
constexpr Budgets kPlenty{kLots, kLots, kLots, kLots, 0};
constexpr ScratchBytes kScratch{.device = 1000, .cpu = 2000, .loading = 3000};
constexpr KvDemand kDemand{.longest_pages = 3, .wanted_pages = 16};

StageShape shape_of(int stages, int stage, std::int64_t layers = 4) {
  return {.spec = testing::small_spec(layers),
          .contents = partition_layers(layers, stages, {})[static_cast<std::size_t>(stage)],
          .batch = {.gpu_batch_size = 4, .num_gpu_batches = 2, .prefill_piece = 24}};
}

Policy policy_of(const Percent& percent) {
  Policy policy;
  policy.percent = percent;
  policy.offload_dir = "/scratch";
  return policy;
}

constexpr Percent kResident{};

std::size_t line(const MemoryReport& report, Tier tier, const std::string& what) {
  for (const auto& entry : report.lines) {
    if (entry.tier == tier && entry.what == what) {
      return entry.size_bytes;
    }
  }
  return 0;
}

PlannedStage plan(const Percent& percent, const Budgets& budgets = kPlenty,
                  const KvDemand& demand = kDemand) {
  return plan_stage(shape_of(2, 0), policy_of(percent), {}, demand, budgets, kScratch);
}

/// Bytes of every tier with just so many pages and weight buffers.
MemoryReport exact(const Percent& percent, std::int64_t pages, std::int64_t buffers = 1) {
  auto policy = policy_of(percent);
  policy.weight_buffers = buffers;
  return plan_stage(shape_of(2, 0), policy, {}, {kDemand.longest_pages, pages}, kPlenty, kScratch)
      .memory;
}

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

/// Raises budgets to what a message's flags say.
Budgets with_flags_of(const std::string& message, Budgets budgets) {
  for (const auto& named : stagecoach::testing::named_flags(message)) {
    (named.flag == "--device-mem" ? budgets.device
     : named.flag == "--cpu-mem"  ? budgets.cpu
                                  : budgets.disk) = named.size_bytes;
  }
  return budgets;
}

TEST(MemoryReport, LinesOfAResidentStage) {
  const auto report = plan(kResident).memory;
  EXPECT_EQ(line(report, Tier::device, "weights"), 2 * kImage);
  // 128 tokens and 514 positions of 64 halfs; the latter are 16.06 pages.
  EXPECT_EQ(line(report, Tier::device, "tables and head"), 4 * kPage + 17 * kPage);
  EXPECT_EQ(line(report, Tier::device, "KV cache"), 2u * 16 * kPage);
  // Three of 32 rows of 64 floats.
  EXPECT_EQ(line(report, Tier::device, "hidden states"), 3u * 32 * 64 * 4);
  // Norm 64, QKV 192, attention 64 and MLP 256 floats a row of 28, in pages.
  EXPECT_EQ(line(report, Tier::device, "workspace"), 16 * kPage);
  EXPECT_EQ(line(report, Tier::device, "device scratch"), 1000u);
  EXPECT_EQ(line(report, Tier::cpu, "staging while loading"), 3000u);
  EXPECT_EQ(report.lines.size(), 7u);
  EXPECT_EQ(report.kv_pages_per_layer, 16);
}

TEST(MemoryReport, LinesOfAStageOverThreeTiers) {
  const auto report = plan({0, 100, 25, 50, 50, 0}).memory;
  const std::vector<std::tuple<Tier, std::string, std::size_t>> expected = {
      {Tier::device, "tables and head", 21 * kPage},
      {Tier::device, "device scratch", 1000},
      {Tier::device, "KV cache", 2u * 4 * kPage},
      {Tier::device, "KV pages staged", 2u * 12 * kPage},  // four sequences of three pages, twice
      {Tier::device, "attention results", 2u * kPage},     // 12 of 4 x 18 floats, twice
      {Tier::device, "streamed weights", 3 * kImage},
      {Tier::device, "hidden states", 6 * kPage},               // three of 28 rows: 5.25 pages
      {Tier::device, "hidden states at work", 2u * 2 * kPage},  // 28 rows: 1.75 pages
      {Tier::device, "workspace", 2u * 16 * kPage},
      {Tier::cpu, "weights", 2 * kImage},
      {Tier::cpu, "scratch", 2000},
      {Tier::cpu, "staging while loading", 3000},
      {Tier::cpu, "KV cache", 2u * 8 * kPage},
      {Tier::cpu, "KV pages being filled", 2u * 4 * kPage},  // all disk pages
      {Tier::cpu, "KV pages on their way", 2u * 1 * kPage},  // 28 rows fill one page
      {Tier::cpu, "KV pages staged", 2u * 4 * kPage},
      {Tier::cpu, "attention results", 2u * kPage},
      {Tier::cpu, "queries, keys, values", 2u * 6 * kPage},  // 28 rows of 192 floats: 5.25 pages
      {Tier::cpu, "hidden states", 3u * 32 * 64 * 4},        // the wire's
      {Tier::cpu, "hidden states staged", 2u * 2 * kPage},
      {Tier::disk, "KV cache", 2u * 4 * kPage},
      {Tier::disk, "hidden states", 3u * 2 * kPage}};
  for (const auto& [tier, what, bytes] : expected) {
    EXPECT_EQ(line(report, tier, what), bytes) << to_string(tier) << " " << what;
  }
  EXPECT_EQ(report.lines.size(), expected.size());
}

TEST(MemoryReport, TotalsAreTheSumsOfTheirLines) {
  const auto report = plan({0, 50, 25, 50, 50, 0}).memory;
  std::size_t sum = 0;
  for (const auto& entry : report.lines) {
    sum += entry.size_bytes;
  }
  EXPECT_EQ(report.total_bytes(Tier::device) + report.total_bytes(Tier::cpu) +
                report.total_bytes(Tier::disk),
            sum);
}

TEST(MemoryReport, TheTiedHeadCostsTheLastStageTheTokenTable) {
  const auto tables = [](int stage) {
    const auto planned =
        plan_stage(shape_of(2, stage), policy_of(kResident), {}, kDemand, kPlenty, kScratch);
    return line(planned.memory, Tier::device, "tables and head");
  };
  EXPECT_EQ(tables(0), (4 + 17) * kPage);
  EXPECT_EQ(tables(1), (4 + 2) * kPage);  // and two vectors of the final norm
}

TEST(MemoryReport, DiskWeightsThatPassThroughDramTakeStaging) {
  const auto planned = plan_stage(shape_of(1, 0), policy_of({0, 50, 100, 0, 100, 0}),
                                  {.direct = false}, kDemand, kPlenty, kScratch);
  EXPECT_EQ(line(planned.memory, Tier::cpu, "weights staged"), std::size_t{32} << 20);
}

/// Where pages of one tier cost a budget, that budget decides how many there are.
void expect_most_pages(const Percent& percent, std::size_t Budgets::*budget, Tier tier) {
  const KvDemand demand{.longest_pages = 3, .wanted_pages = 40};
  for (const std::int64_t pages : {3, 10, 39}) {
    auto budgets = kPlenty;
    budgets.*budget = exact(percent, pages).total_bytes(tier);
    EXPECT_EQ(plan(percent, budgets, demand).memory.kv_pages_per_layer, pages);
    budgets.*budget = exact(percent, pages + 1).total_bytes(tier) - 1;
    EXPECT_EQ(plan(percent, budgets, demand).memory.kv_pages_per_layer, pages);
  }
}

TEST(MemoryReport, TakesTheMostPagesThatFitTheDevice) {
  expect_most_pages(kResident, &Budgets::device, Tier::device);
}

TEST(MemoryReport, TakesTheMostPagesThatFitTheCpu) {
  expect_most_pages({100, 0, 0, 100, 100, 0}, &Budgets::cpu, Tier::cpu);
}

TEST(MemoryReport, TakesTheMostPagesThatFitTheDisk) {
  expect_most_pages({100, 0, 0, 0, 100, 0}, &Budgets::disk, Tier::disk);
}

TEST(MemoryReport, TakesTheMostPagesThatFitDeviceAndCpuTogether) {
  const Percent percent{100, 0, 50, 50, 100, 0};
  const KvDemand demand{.longest_pages = 3, .wanted_pages = 40};
  for (const std::int64_t pages : {3, 10, 39}) {
    const auto report = exact(percent, pages);
    auto budgets = kPlenty;
    budgets.together = report.total_bytes(Tier::device) + report.total_bytes(Tier::cpu);
    EXPECT_EQ(plan(percent, budgets, demand).memory.kv_pages_per_layer, pages);
    budgets.together -= 1;
    EXPECT_TRUE(pages == 3 ||
                plan(percent, budgets, demand).memory.kv_pages_per_layer == pages - 1);
  }
}

Percent random_percent(std::mt19937& random) {
  const auto pair = [&](double& device, double& cpu) {
    device = std::uniform_int_distribution<int>(0, 100)(random);
    cpu = std::uniform_int_distribution<int>(0, static_cast<int>(100 - device))(random);
  };
  Percent percent;
  pair(percent.weights_device, percent.weights_cpu);
  pair(percent.cache_device, percent.cache_cpu);
  pair(percent.hidden_device, percent.hidden_cpu);
  return percent;
}

/// Budgets between the least that runs and all that is wanted.
Budgets random_budgets(std::mt19937& random, const Percent& percent, const KvDemand& demand) {
  const auto least = exact(percent, demand.longest_pages);
  const auto most = exact(percent, demand.wanted_pages, 3);
  const auto between = [&](Tier tier) {
    std::uniform_int_distribution<std::size_t> any(least.total_bytes(tier), most.total_bytes(tier));
    return any(random);
  };
  return {between(Tier::device), between(Tier::cpu), between(Tier::disk), 0, 0};
}

TEST(MemoryReport, NoOtherNumberOfPagesThatFitsIsLarger) {
  std::mt19937 random(3);
  const KvDemand demand{.longest_pages = 3, .wanted_pages = 60};
  for (int i = 0; i < 300; ++i) {
    const auto percent = random_percent(random);
    SCOPED_TRACE(format_percent(percent));
    const auto planned = plan(percent, random_budgets(random, percent, demand), demand);
    ASSERT_TRUE(planned.memory.fits());
    for (auto pages = planned.memory.kv_pages_per_layer + 1; pages <= demand.wanted_pages;
         ++pages) {
      ASSERT_FALSE(plan_with_pages(planned, demand, pages, kScratch).memory.fits()) << pages;
    }
  }
}

TEST(MemoryReport, FewerPagesStillFit) {
  std::mt19937 random(4);
  const KvDemand demand{.longest_pages = 3, .wanted_pages = 60};
  for (int i = 0; i < 300; ++i) {
    const auto percent = random_percent(random);
    SCOPED_TRACE(format_percent(percent));
    const auto planned = plan(percent, random_budgets(random, percent, demand), demand);
    for (auto pages = planned.memory.kv_pages_per_layer; pages >= demand.longest_pages; --pages) {
      const auto fewer = plan_with_pages(planned, demand, pages, kScratch);
      ASSERT_TRUE(fewer.memory.fits()) << pages;
      ASSERT_EQ(fewer.memory.kv_pages_per_layer, pages);
      ASSERT_EQ(fewer.plan.weights.buffers, planned.plan.weights.buffers);
    }
  }
}

TEST(MemoryReport, StreamsThroughThreeBuffersWhereAllFits) {
  const Percent percent{0, 100, 100, 0, 100, 0};
  auto budgets = kPlenty;
  budgets.device = exact(percent, kDemand.wanted_pages, 3).total_bytes(Tier::device);
  EXPECT_EQ(plan(percent, budgets).plan.weights.buffers, 3);
  budgets.device -= 1;
  EXPECT_EQ(plan(percent, budgets).plan.weights.buffers, 2);
}

TEST(MemoryReport, StreamsThroughTwoBuffersElseThroughOne) {
  const Percent percent{0, 100, 100, 0, 100, 0};
  auto budgets = kPlenty;
  budgets.device = exact(percent, kDemand.longest_pages, 2).total_bytes(Tier::device);
  EXPECT_EQ(plan(percent, budgets).plan.weights.buffers, 2);
  EXPECT_EQ(plan(percent, budgets).memory.kv_pages_per_layer, kDemand.longest_pages);
  budgets.device -= 1;
  EXPECT_EQ(plan(percent, budgets).plan.weights.buffers, 1);
  EXPECT_GT(plan(percent, budgets).memory.kv_pages_per_layer, kDemand.longest_pages);
}

TEST(MemoryReport, StreamsThroughAsManyBuffersAsThePolicySays) {
  auto policy = policy_of({0, 100, 100, 0, 100, 0});
  policy.weight_buffers = 5;
  const auto planned = plan_stage(shape_of(2, 0), policy, {}, kDemand, kPlenty, kScratch);
  EXPECT_EQ(planned.plan.weights.buffers, 5);
  EXPECT_EQ(line(planned.memory, Tier::device, "streamed weights"), 5 * kImage);
}

TEST(MemoryReport, RefusesWithNumbersAndFlags) {
  auto budgets = kPlenty;
  budgets.device = exact(kResident, kDemand.longest_pages).total_bytes(Tier::device) - 1;
  EXPECT_THAT(refusal([&] { plan(kResident, budgets); }),
              AllOf(HasSubstr("does not fit"), HasSubstr("device 469 KiB of"),
                    HasSubstr("weights 272 KiB"), HasSubstr("--device-mem 1MiB")));
}

TEST(MemoryReport, TheFlagsOfARefusalMakeItFit) {
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const auto percent = random_percent(random);
    SCOPED_TRACE(format_percent(percent));
    Budgets budgets = kPlenty;
    const auto least = exact(percent, kDemand.longest_pages);
    bool too_small = false;
    const auto shrink = [&](std::size_t& budget, Tier tier) {
      if (const auto bytes = least.total_bytes(tier); bytes > 0 && random() % 2 == 0) {
        budget = random() % bytes;
        too_small = true;
      }
    };
    shrink(budgets.device, Tier::device);
    shrink(budgets.cpu, Tier::cpu);
    shrink(budgets.disk, Tier::disk);
    if (!too_small) {
      continue;
    }
    const auto message = refusal([&] { plan(percent, budgets); });
    ASSERT_TRUE(plan(percent, with_flags_of(message, budgets)).memory.fits()) << message;
  }
}

TEST(MemoryReport, NoFlagIsSaidToDoWhereTheDiskIsTooSmall) {
  auto budgets = kPlenty;
  budgets.disk = std::size_t{3} << 10;
  budgets.disk_free = std::size_t{4} << 10;
  const auto message = refusal([&] { plan({100, 0, 0, 0, 100, 0}, budgets); });
  EXPECT_THAT(message, AllOf(HasSubstr("of 3.00 KiB (KV cache "),
                             HasSubstr("; more disk space (another --offload-dir) would do"),
                             Not(HasSubstr("-mem "))));
  budgets.device = budgets.disk;
  EXPECT_THAT(refusal([&] {
                plan({100, 0, 0, 0, 100, 0}, budgets);
              }),
              AllOf(HasSubstr("more disk space (another --offload-dir) and --device-mem "),
                    Not(HasSubstr("--disk-mem "))));
}

TEST(MemoryReport, ATooSmallMachineIsNamed) {
  auto budgets = kPlenty;
  budgets.together = std::size_t{100} << 10;
  EXPECT_THAT(refusal([&] { plan(kResident, budgets); }),
              AllOf(HasSubstr("together 472 KiB of 100 KiB"), HasSubstr("more memory would do"),
                    Not(HasSubstr("-mem "))));
}

TEST(MemoryReport, NoFlagIsSaidToDoWhereTheMachineIsTooSmall) {
  auto budgets = kPlenty;
  budgets.together = std::size_t{100} << 10;
  budgets.device = std::size_t{50} << 10;
  const auto message = refusal([&] { plan(kResident, budgets); });
  EXPECT_THAT(message, AllOf(HasSubstr("device 469 KiB of 50.0 KiB"),
                             HasSubstr("together 472 KiB of 100 KiB"),
                             HasSubstr("more memory would do"), Not(HasSubstr("-mem "))));
}

PlannedStage plan_pinning(Switch wish, std::size_t pinned_bytes) {
  auto policy = policy_of({0, 100, 100, 0, 100, 0});
  policy.pin_weights = wish;
  auto budgets = kPlenty;
  budgets.pinned = pinned_bytes;
  return plan_stage(shape_of(2, 0), policy, {}, kDemand, budgets, kScratch);
}

TEST(MemoryReport, PinsByItselfWhatMayBePinned) {
  EXPECT_TRUE(plan_pinning(Switch::automatic, 2 * kImage).plan.weights.pinned);
  EXPECT_EQ(plan_pinning(Switch::automatic, 2 * kImage).memory.pinned_bytes, 2 * kImage);
  EXPECT_FALSE(plan_pinning(Switch::automatic, 2 * kImage - 1).plan.weights.pinned);
  EXPECT_EQ(plan_pinning(Switch::automatic, 2 * kImage - 1).memory.pinned_bytes, 0u);
}

TEST(MemoryReport, PinsAsThePolicySaysOrRefuses) {
  EXPECT_TRUE(plan_pinning(Switch::on, 2 * kImage).plan.weights.pinned);
  EXPECT_FALSE(plan_pinning(Switch::off, kLots).plan.weights.pinned);
  EXPECT_THAT(
      refusal([] { plan_pinning(Switch::on, 2 * kImage - 1); }),
      AllOf(HasSubstr("--pin-weights on"), HasSubstr("272 KiB"), HasSubstr("--pinned-mem")));
}

TEST(MemoryReport, WithoutWeightsInDramNothingIsPinned) {
  auto policy = policy_of(kResident);
  policy.pin_weights = Switch::on;
  const auto planned =
      plan_stage(shape_of(1, 0), policy, {}, kDemand, {kLots, kLots, kLots, 0, 0}, kScratch);
  EXPECT_FALSE(planned.plan.weights.pinned);
}

PlannedStage plan_pinning_copies(std::size_t pinned_bytes) {
  auto budgets = kPlenty;
  budgets.pinned = pinned_bytes;
  return plan_stage(shape_of(2, 0), policy_of({0, 100, 50, 50, 0, 100}),
                    {.direct = false, .pin_copied = true}, kDemand, budgets, kScratch);
}

TEST(MemoryReport, WhereCopiesWantPinnedMemorySmallerAreasComeFirstThenWeightsThenTheCache) {
  const auto all = plan_pinning_copies(kLots);
  const auto& memory = all.memory;
  const auto cache = line(memory, Tier::cpu, "KV cache");
  const auto weights = line(memory, Tier::cpu, "weights");
  const auto small = line(memory, Tier::cpu, "hidden states") +
                     line(memory, Tier::cpu, "queries, keys, values") +
                     line(memory, Tier::cpu, "attention results");
  ASSERT_GT(cache, 0u);
  ASSERT_GT(small, 0u);
  ASSERT_EQ(weights, 2 * kImage);
  EXPECT_EQ(memory.pinned_bytes, small + cache + weights);

  const auto no_cache = plan_pinning_copies(small + cache + weights - 1);
  EXPECT_EQ(no_cache.memory.pinned_bytes, small + weights);
  EXPECT_TRUE(no_cache.plan.weights.pinned);
  EXPECT_THAT(areas_to_pin(no_cache.plan, small + cache + weights - 1),
              Not(Contains(Area::kv_cpu)));
  EXPECT_THAT(areas_to_pin(no_cache.plan, small + cache + weights), Contains(Area::kv_cpu));
  // The cache is the smaller one here: it takes what is too little for the weights.
  ASSERT_LT(cache, weights);
  const auto no_weights = plan_pinning_copies(small + weights - 1);
  EXPECT_EQ(no_weights.memory.pinned_bytes, small + cache);
  EXPECT_FALSE(no_weights.plan.weights.pinned);
  EXPECT_EQ(plan_pinning_copies(0).memory.pinned_bytes, 0u);
}

TEST(MemoryReport, AGpusOperationsTakeDramToo) {
  auto scratch = kScratch;
  scratch.device_in_dram = 5000;
  const auto report =
      plan_stage(shape_of(2, 0), policy_of(kResident), {}, kDemand, kPlenty, scratch).memory;
  EXPECT_EQ(line(report, Tier::cpu, "copies and results"), 5000u);
  EXPECT_EQ(report.total_bytes(Tier::cpu), 5000u + 3000u);
}

/// Layers large enough for pages and rows to be small beside a per cent.
MemoryReport report_of_opt(const Percent& percent, std::int64_t layers, bool direct = true) {
  StageShape shape;
  shape.spec = model::spec_from_settings({{"layers", std::to_string(layers)},
                                          {"hidden", "2048"},
                                          {"heads", "32"},
                                          {"ffn", "8192"},
                                          {"vocab", "50272"},
                                          {"max_positions", "2048"}},
                                         "opt");
  shape.contents = partition_layers(layers, 1, {}).front();
  auto policy = policy_of(percent);
  policy.weight_buffers = 2;
  return plan_stage(shape, policy, {.direct = direct}, {10, 320}, kPlenty, kScratch).memory;
}

TEST(MemoryReport, FivePercentMoreOnTheDeviceTakeFivePercentMoreThere) {
  constexpr std::int64_t kLayers = 24;
  const auto all =
      static_cast<double>(line(report_of_opt(kResident, kLayers), Tier::device, "weights"));
  const auto device = [&](double percent) {
    return report_of_opt({percent, 100 - percent, 100, 0, 100, 0}, kLayers);
  };
  const auto at25 = device(25);
  const auto at30 = device(30);
  const auto change = [&](const std::string& what) {
    return static_cast<double>(line(at30, Tier::device, what)) -
           static_cast<double>(line(at25, Tier::device, what));
  };
  EXPECT_NEAR(change("weights") / all, 0.05, 0.001);
  // Two of 24 layers are in buffers, which need five per cent less.
  const auto total = static_cast<double>(at30.total_bytes(Tier::device)) -
                     static_cast<double>(at25.total_bytes(Tier::device));
  EXPECT_NEAR(total / all, 0.05 * 22 / 24, 0.001);
}

TEST(MemoryReport, TheDeviceTotalGrowsWithTheShareAndNeverJumps) {
  constexpr std::int64_t kLayers = 24;
  const auto all =
      static_cast<double>(line(report_of_opt(kResident, kLayers), Tier::device, "weights"));
  double last = 0;
  for (int percent = 0; percent <= 100; ++percent) {
    const auto report = report_of_opt({double(percent), 0, 100, 0, 100, 0}, kLayers);
    const auto total = static_cast<double>(report.total_bytes(Tier::device));
    if (percent > 0) {
      EXPECT_GT(total, last) << percent;
      EXPECT_LT(total - last, 0.012 * all) << percent;
    }
    last = total;
  }
}

TEST(MemoryReport, WithAllOnDiskDeviceAndDramDoNotGrowWithTheModel) {
  for (const bool direct : {true, false}) {
    const Percent percent{0, 0, 0, 0, 0, 0};
    const auto small = report_of_opt(percent, 4, direct);
    const auto large = report_of_opt(percent, 96, direct);
    EXPECT_EQ(large.total_bytes(Tier::device), small.total_bytes(Tier::device));
    const auto beside_open_pages = [](const MemoryReport& report) {
      return report.total_bytes(Tier::cpu) - line(report, Tier::cpu, "KV pages being filled");
    };
    EXPECT_EQ(beside_open_pages(large), beside_open_pages(small));
    EXPECT_EQ(line(large, Tier::cpu, "KV pages being filled"),
              24 * line(small, Tier::cpu, "KV pages being filled"));
    EXPECT_EQ(line(large, Tier::cpu, "weights"), 0u);
  }
}

TEST(MemoryReport, IsATableWithTotalAndBudgetOfEachTierThatIsUsed) {
  auto budgets = kPlenty;
  budgets.device = std::size_t{1} << 20;
  const auto text = format_report(plan({0, 100, 100, 0, 100, 0}, budgets).memory);
  EXPECT_THAT(text, AllOf(HasSubstr("  device\n"), HasSubstr("  cpu\n"), Not(HasSubstr("disk"))));
  EXPECT_THAT(text, AllOf(HasSubstr("streamed weights"), HasSubstr(" of 1.00 MiB\n"),
                          HasSubstr("of it pinned")));
}

}  // namespace
}  // namespace stagecoach::stage
