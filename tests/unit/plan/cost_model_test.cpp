#include "plan/cost_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/stage_estimate.hpp"
#include "unit/plan/machines.hpp"

namespace stagecoach::plan {
namespace {

using stage::Step;
using stage::StepKind;
using testing::gpu_node;
using testing::host_node;

/// A stage of four layers with all its kinds of data where `percent` says.
stage::StagePlan plan_of(const NodeProfile& node, const stage::Percent& percent,
                         const model::WeightFormat& weights = {},
                         const device::KvFormat& cache = {}) {
  stage::StageShape shape{.spec = testing::model_of(4, 1024),
                          .contents = {0, 4, true, true},
                          .batch = {.gpu_batch_size = 8, .kv_format = cache},
                          .weights = weights};
  stage::Policy policy;
  policy.percent = percent;
  policy.offload_dir = "/disk";
  auto options = options_for(node, stage::ScheduleKind::rolling, true);
  auto plan = stage::make_plan(shape, policy, options, 8, 64, 2);
  plan.weights.pinned = true;
  return plan;
}

Step step(StepKind kind, stage::Resource resource, double flops, std::int64_t bytes,
          std::int64_t rows) {
  Step step{.kind = kind, .resource = resource, .gpu_batch = 0, .rows = rows};
  step.flops = flops;
  step.bytes = bytes;
  return step;
}

TEST(CostModel, ProductsGoByTheirRows) {
  const auto node = gpu_node();
  const auto plan = plan_of(node, {});
  const CostModel costs(node, plan);
  // 64 rows: 8e12 FLOP/s by the table; the norm passes over 64 rows of 1024 floats twice.
  const double norm = 2.0 * 4 * 64 * 1024 / 100e9;
  const auto mlp = costs.of(step(StepKind::mlp, stage::Resource::compute, 8e9, 0, 64), {{}});
  EXPECT_NEAR(mlp.seconds, 2e-5 + norm + 1e-3, 1e-12);
  EXPECT_EQ(mlp.draw(Pool::cores), 0);  // a GPU's
  const auto out =
      costs.of(step(StepKind::attention_out, stage::Resource::compute, 1e9, 0, 1), {{}});
  EXPECT_NEAR(out.seconds, 2e-5 + 1e9 / 1e11, 1e-12);
}

TEST(CostModel, OnTheHostWorkDrawsCoresAndMemory) {
  const auto node = host_node();
  const auto plan = plan_of(node, {});
  const CostModel costs(node, plan);
  const auto out =
      costs.of(step(StepKind::attention_out, stage::Resource::compute, 2e8, 0, 1), {{}});
  EXPECT_NEAR(out.seconds, 2e-5 + 2e8 / 1e10, 1e-12);
  EXPECT_DOUBLE_EQ(out.draw(Pool::cores), 2);
  // One row: as many weights as half the operations, two bytes each.
  EXPECT_NEAR(out.draw(Pool::memory) * out.seconds, 2e8 / 2 * 2, 1);
}

TEST(CostModel, WidthsBetweenThoseMeasured) {
  auto node = gpu_node();
  node.formats[Packing::none].products = {{512, Curve(1e10)}, {2048, Curve(4e10)}};
  const auto plan = plan_of(node, {});
  const CostModel costs(node, plan);
  // 1024 is half-way in the logarithm: the geometric mean, 2e10.
  const auto out =
      costs.of(step(StepKind::attention_out, stage::Resource::compute, 2e9, 0, 4), {{}});
  EXPECT_NEAR(out.seconds, 2e-5 + 0.1, 1e-9);
}

TEST(CostModel, AttentionReadsWhatIsAttendedTo) {
  const auto node = gpu_node();
  const auto plan = plan_of(node, {100, 0, 0, 100, 100, 0});
  const CostModel costs(node, plan);
  const BatchLoad load{.device_tokens = 3000, .cpu_tokens = 5000, .prompt_flops = 1e10};
  const double token_bytes = 2.0 * 2 * 1024;
  const auto device =
      costs.of(step(StepKind::attention, stage::Resource::compute, 0, 0, 8), {load});
  EXPECT_NEAR(device.seconds,
              2e-5 + 3000 * token_bytes / 150e9 + 1e10 / 5e12 + 8 * token_bytes / 100e9, 1e-12);
  const auto cpu =
      costs.of(step(StepKind::attend_cpu, stage::Resource::cpu_compute, 0, 0, 8), {load});
  EXPECT_NEAR(cpu.seconds, 2e-5 + 5000 * token_bytes / 20e9, 1e-12);
  EXPECT_DOUBLE_EQ(cpu.draw(Pool::cores), 16);
  EXPECT_NEAR(cpu.draw(Pool::memory) * cpu.seconds, 5000 * token_bytes, 1e-3);
}

TEST(CostModel, CopiesFromPinnedAndOtherMemory) {
  auto node = gpu_node();
  auto plan = plan_of(node, {50, 50, 100, 0, 100, 0});
  const auto load = step(StepKind::load_weights, stage::Resource::h2d, 0, 120'000'000, 0);
  EXPECT_NEAR(CostModel(node, plan).of(load, {{}}).seconds, 1e-5 + 0.01, 1e-12);
  EXPECT_EQ(CostModel(node, plan).of(load, {{}}).draw(Pool::cores), 0);
  plan.weights.pinned = false;
  EXPECT_NEAR(CostModel(node, plan).of(load, {{}}).seconds, 1e-5 + 0.02, 1e-12);
  EXPECT_EQ(CostModel(node, plan).of(load, {{}}).draw(Pool::cores), 1);
  const auto cached = plan_of(node, {100, 0, 0, 100, 100, 0});
  const auto save = step(StepKind::save_rows, stage::Resource::d2h, 0, 12'000'000, 8);
  EXPECT_NEAR(CostModel(node, cached).of(save, {{}}).seconds, 1e-5 + 0.001, 1e-12);
  node.pinned_mem_bytes = 0;
  EXPECT_NEAR(CostModel(node, cached).of(save, {{}}).seconds, 1e-5 + 0.002, 1e-12);
}

TEST(CostModel, ALoneStageHasTheWholeDisk) {
  auto node = gpu_node();
  node.stages = 2;  // each measured 2 GB/s beside the other
  const auto plan = plan_of(node, {0, 0, 100, 0, 100, 0});
  const CostModel costs(node, plan);
  const auto read =
      costs.of(step(StepKind::read_weights, stage::Resource::disk_read, 0, 8'000'000, 0), {{}});
  EXPECT_NEAR(read.seconds, 1e-4 + 8e6 / 4e9, 1e-12);
  EXPECT_DOUBLE_EQ(read.draw(Pool::disk_read), 1);
  EXPECT_DOUBLE_EQ(read.draw(Pool::disk_write), 0);
  // Both ways 2 GB/s together where reading alone is 2 and writing 1: 2 * 2 / 3 of them.
  EXPECT_NEAR(costs.capacity()[static_cast<std::size_t>(Pool::disk)], 4.0 / 3, 1e-12);
}

TEST(CostModel, SmallPagesAreSlowerOnDisk) {
  auto node = gpu_node();
  node.disk.write = Curve({{65536, 1e8}, {1 << 20, 1e9}});
  const auto plan = plan_of(node, {100, 0, 0, 0, 100, 0});
  // A page: 16 tokens of K and V, 1024 numbers of two bytes.
  ASSERT_EQ(plan.kv.page_bytes, 65536u);
  const auto write = step(StepKind::write_kv, stage::Resource::disk_write, 0, 10 * 65536, 1);
  EXPECT_NEAR(CostModel(node, plan).of(write, {{}}).seconds, 1e-4 + 10 * 65536 / 1e8, 1e-12);
}

TEST(CostModel, WidenedWeightsAreF16) {
  auto node = gpu_node();
  node.formats[Packing::int4].products = {{4096, Curve(1e12)}};
  const model::WeightFormat packed{{Packing::int4, 64}};
  const auto plan = plan_of(node, {}, packed);
  const CostModel costs(node, plan);
  ASSERT_GT(plan.weights.wide_bytes, 0u);
  const auto seconds = [&](std::int64_t rows, double flops) {
    return costs.of(step(StepKind::attention_out, stage::Resource::compute, flops, 0, rows), {{}})
        .seconds;
  };
  EXPECT_NEAR(seconds(plan.weights.packed_product_rows, 1e9), 2e-5 + 1e-3, 1e-12);
  EXPECT_NEAR(seconds(64, 8e9), 2e-5 + 1e-3, 1e-12);
  const auto widen =
      costs.of(step(StepKind::widen_weights, stage::Resource::compute, 0, 0, 0), {{}});
  EXPECT_NEAR(widen.seconds, 2e-5 + static_cast<double>(plan.weights.wide_bytes) / 60e9, 1e-12);
}

TEST(CostModel, TheHeadIsAProductAndAChoice) {
  const auto node = gpu_node();
  const auto plan = plan_of(node, {});
  const CostModel costs(node, plan);
  const auto head = step(StepKind::head, stage::Resource::compute, 8e9, 0, 64);
  const double norm = 2.0 * 4 * 64 * 1024 / 100e9;
  EXPECT_NEAR(costs.of(head, {{}}).seconds, 2e-5 + norm + 1e-3 + 64 * 1000 / 1e9, 1e-12);
}

TEST(CostModel, MissingRatesAreNamed) {
  auto node = gpu_node();
  EXPECT_THAT(
      [&] {
        CostModel(node, plan_of(node, {}, {{Packing::int8, 64}}));
      },
      ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("int8 weights")));
  EXPECT_THAT([&] { CostModel(node, plan_of(node, {}, {}, device::KvType::int8)); },
              ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("int8 KV cache")));
  node.disk = {};
  const auto plan = plan_of(node, {0, 0, 100, 0, 100, 0});
  EXPECT_THAT([&] { CostModel(node, plan); },
              ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("has no disk")));
}

TEST(CostModel, LoadsOfAVisit) {
  const auto node = gpu_node();
  auto plan = plan_of(node, {100, 0, 0, 100, 100, 0});
  stage::Scheduler scheduler(plan);
  const auto entry = [](std::int32_t slot, std::int32_t position, std::size_t rows) {
    stage::VisitEntry entry;
    entry.slot = slot;
    entry.first_position = position;
    entry.tokens.assign(rows, 0);
    return entry;
  };
  stage::Visit first;
  first.entries = {entry(0, 0, 20), entry(1, 0, 33)};
  static_cast<void>(scheduler.next(first));
  stage::Visit second;
  second.number = 1;
  second.entries = {entry(0, 20, 1), entry(1, 33, 1), entry(2, 0, 10)};
  const auto schedule = scheduler.next(second);
  const auto loads = loads_of(second, schedule, plan);
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_DOUBLE_EQ(loads[0].cpu_tokens, 21 + 34);
  EXPECT_DOUBLE_EQ(loads[0].device_tokens, 0);
  EXPECT_DOUBLE_EQ(loads[0].prompt_flops, 4.0 * 1024 * 10 * 11 / 2);
}

}  // namespace
}  // namespace stagecoach::plan
