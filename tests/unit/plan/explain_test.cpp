#include "plan/explain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace stagecoach::plan {
namespace {

using stage::Resource;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kGiB = std::size_t{1} << 30;

StageUse use_of(double compute, double to_device, double from_disk) {
  StageUse use;
  use.busy_seconds[static_cast<std::size_t>(Resource::compute)] = compute;
  use.busy_seconds[static_cast<std::size_t>(Resource::h2d)] = to_device;
  use.busy_seconds[static_cast<std::size_t>(Resource::disk_read)] = from_disk;
  use.bytes[static_cast<std::size_t>(Resource::h2d)] = 3.0 * kGiB;
  use.visits = 10;
  return use;
}

stage::PlannedStage stage_of(std::int64_t first_layer, std::int64_t layers, bool first, bool last) {
  stage::PlannedStage stage;
  stage.plan.shape.contents = {
      .first_layer = first_layer, .layers = layers, .embedding = first, .head = last};
  stage.plan.policy.percent = {20, 70.5, 0, 100, 100, 0};
  stage.plan.weights.buffers = 3;
  stage.plan.cpu_attention = true;
  stage.memory.lines = {{offload::Tier::device, "weights", 2 * kGiB},
                        {offload::Tier::device, "workspace", 1 * kGiB},
                        {offload::Tier::cpu, "KV cache", 8 * kGiB}};
  stage.memory.budgets.device = 4 * kGiB;
  stage.memory.budgets.cpu = 10 * kGiB;
  return stage;
}

/// A job of 200 s on two stages, whose disk on stage 1 works the most.
JobPlan made_up() {
  JobPlan plan;
  plan.batch = {.gpu_batch_size = 16, .num_gpu_batches = 4, .inner_iterations = 3};
  plan.batch.kv_format = {device::KvType::int4, 64};
  plan.layers_per_stage = {5, 3};
  plan.stages = {stage_of(0, 5, true, false), stage_of(5, 3, false, true)};
  plan.policies = {plan.stages[0].plan.policy, plan.stages[1].plan.policy};
  plan.simulated.seconds = 200;
  plan.simulated.stages = {use_of(100, 150, 0), use_of(120, 0, 190)};
  plan.seconds = 200;
  plan.tokens_per_second = 12.5;
  plan.decode_tokens_per_second = 14.25;
  plan.max_latency_seconds = 90;
  return plan;
}

Cluster two_nodes() {
  Cluster cluster;
  cluster.nodes.resize(2);
  cluster.nodes[0].host = "north";
  cluster.nodes[1].host = "south";
  cluster.node_of_stage = {0, 1};
  return cluster;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST(Explain, TheBottleneckIsWhatIsBusiestOfAll) {
  const auto plan = made_up();
  const auto most = bottleneck_of(plan.simulated);
  EXPECT_EQ(most.stage, 1u);
  EXPECT_EQ(most.resource, Resource::disk_read);
  EXPECT_DOUBLE_EQ(most.share, 0.95);
  const auto first = bottleneck_of(plan.simulated, 0);
  EXPECT_EQ(first.resource, Resource::h2d);
  EXPECT_DOUBLE_EQ(first.share, 0.75);
}

TEST(Explain, TheSummarySaysWhatIsPredicted) {
  const auto text = summarize(made_up());
  EXPECT_THAT(text, HasSubstr("2 stages with 5, 3 layers"));
  EXPECT_THAT(text, HasSubstr("16 x 4 sequences a block, 3 in flight"));
  EXPECT_THAT(text, HasSubstr("weights f16, cache int4"));
  EXPECT_THAT(text, HasSubstr("12.5 generated tokens/s, 14.25 while decoding; 3m 20s in all"));
  EXPECT_THAT(text, HasSubstr("disk read of stage 1, busy 95.0 % of the time"));
  EXPECT_THAT(text, Not(HasSubstr("kWh")));
}

// 200 s of 450 W are 90 kJ, 0.025 kWh; 2500 tokens take 36 J each.
TEST(Explain, EnergyIsSaidWhereWattsAreKnown) {
  auto plan = made_up();
  plan.joules = 90e3;
  EXPECT_THAT(summarize(plan), HasSubstr("0.025 kWh, 36 J a token"));
}

TEST(Explain, EachStageHasItsPlacementBytesAndTimes) {
  const auto text = explain(made_up(), two_nodes());
  EXPECT_THAT(text, HasSubstr("stage 0 on north: layers 0 to 4, embedding; 3 buffers"));
  EXPECT_THAT(text, HasSubstr("stage 1 on south: layers 5 to 7, head; 3 buffers"));
  EXPECT_THAT(text, ContainsRegex("device +20 % +0 % +100 % +3.00 GiB +4.00 GiB +75.0 %"));
  EXPECT_THAT(text, ContainsRegex("cpu +70.5 % +100 % +0 % +8.00 GiB +10.0 GiB +80.0 %"));
  EXPECT_THAT(text, ContainsRegex("disk +9.5 % +0 % +0 % +0 B"));
  EXPECT_THAT(text, ContainsRegex("h2d +150 +75.0 % +3.00 GiB +<- the bottleneck"));
  EXPECT_THAT(text, ContainsRegex("disk read +190 +95.0 % +<- the bottleneck"));
  EXPECT_THAT(text, Not(ContainsRegex("compute[^\n]*bottleneck")));
  EXPECT_THAT(text, Not(HasSubstr("times below")));
}

TEST(Explain, SaysWhenItsTimesAreOfAPart) {
  auto plan = made_up();
  plan.seconds = 1000;
  EXPECT_THAT(explain(plan, two_nodes()), HasSubstr("times below are of the first 3m 20s"));
}

TEST(Explain, AlternativesAreALineEach) {
  PlanResult result;
  result.best = {made_up(), made_up()};
  result.best[1].weights.layers.packing = Packing::int8;
  const auto lines = lines_of(format_alternatives(result));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[1], ContainsRegex("12.5 +1m 30s +3m 20s +16 x 4 x 3 +512 +16 +f16 +int4"));
  EXPECT_THAT(lines[2], ContainsRegex("int8 +int4 +20 70.5 0 100 100 0 +5,3"));
}

// Up to 100 tokens/s in 12 rows, up to 60 s in 60 columns: the slower plan's row is the sixth
// above the axis, its column the sixteenth.
TEST(Explain, TheFrontierIsPlotted) {
  PlanResult result;
  result.frontier = {made_up(), made_up()};
  result.frontier[0].tokens_per_second = 49;
  result.frontier[0].max_latency_seconds = 15.5;
  result.frontier[1].tokens_per_second = 100;
  result.frontier[1].max_latency_seconds = 60;
  const auto lines = lines_of(format_frontier(result));
  ASSERT_EQ(lines.size(), 3u + 1 + 1 + 12 + 1);
  EXPECT_EQ(lines[4], "  tokens/s, up to 100");
  EXPECT_EQ(lines[5], "  |" + std::string(59, ' ') + "*");
  EXPECT_EQ(lines[11], "  |" + std::string(15, ' ') + "*");
  EXPECT_EQ(lines[16], "  |");
  EXPECT_THAT(lines[17], HasSubstr("latency of a request, 0 to 1m 00s"));
}

TEST(Explain, TheLargestGainComesFirst) {
  const auto lines = lines_of(format_improvements(
      {{"twice the DRAM", 11}, {"a disk twice as fast", 25}, {"one more stage", 20}}, made_up()));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], ContainsRegex("a disk twice as fast +25 tokens/s +2.00 times"));
  EXPECT_THAT(lines[1], ContainsRegex("one more stage +20 tokens/s +1.60 times"));
  EXPECT_THAT(lines[2], ContainsRegex("twice the DRAM +12.5 tokens/s +1.00 times"));
}

}  // namespace
}  // namespace stagecoach::plan
