#include "stage/stage_plan.hpp"

#include <gtest/gtest.h>

#include "base/aligned_memory.hpp"
#include "stage/partition.hpp"
#include "unit/stage/specs.hpp"

namespace stagecoach::stage {
namespace {

using offload::ByteRange;
using offload::Tier;
using offload::TierCounts;

StageShape shape_of(const BatchShape& batch, int stages = 1, int stage = 0) {
  return {.spec = testing::small_spec(4),
          .contents = partition_layers(4, stages, {})[static_cast<std::size_t>(stage)],
          .batch = batch};
}

Policy policy_of(const Percent& percent) {
  Policy policy;
  policy.percent = percent;
  policy.offload_dir = "/scratch";
  return policy;
}

constexpr BatchShape kBatch{.gpu_batch_size = 4, .num_gpu_batches = 2, .prefill_piece = 24};

StagePlan plan_of(const Percent& percent, const PlanOptions& options = {},
                  std::int64_t buffers = 2) {
  return make_plan(shape_of(kBatch), policy_of(percent), options, 3, 24, buffers);
}

TEST(BatchShape, RollingVisitsCarryATokenAPlaceAndAPiece) {
  EXPECT_EQ(kBatch.max_visit_rows(), 8 + 24);
  EXPECT_EQ(kBatch.max_batch_rows(), 4 + 24);
}

TEST(BatchShape, WholeVisitsCarryThePromptOfEveryPlace) {
  auto batch = kBatch;
  batch.admission = Admission::whole;
  batch.longest_prompt = 100;
  EXPECT_EQ(batch.max_visit_rows(), 8 * 100);
  EXPECT_EQ(batch.max_batch_rows(), 4 * 100);
}

TEST(WeightPlan, IsOneUnitALayerOrTwoPhases) {
  const auto whole = plan_of({50, 50, 100, 0, 100, 0}).weights;
  ASSERT_EQ(whole.units.size(), 1u);
  EXPECT_EQ(whole.units[0], (ByteRange{0, whole.image.size_bytes()}));
  const auto phases =
      plan_of({50, 50, 100, 0, 100, 0}, {.schedule = ScheduleKind::flexgen}).weights;
  ASSERT_EQ(phases.units.size(), 2u);
  const auto middle = phases.image.part("mlp_norm.weight").offset_bytes;
  EXPECT_EQ(phases.units[0], (ByteRange{0, middle}));
  EXPECT_EQ(phases.units[1], (ByteRange{middle, phases.image.size_bytes()}));
}

TEST(WeightPlan, WhatIsNotOnTheDeviceComesFromCpuOrDiskOnce) {
  for (const auto schedule : {ScheduleKind::rolling, ScheduleKind::flexgen}) {
    for (int device = 0; device <= 100; device += 5) {
      for (int cpu = 0; device + cpu <= 100; cpu += 5) {
        SCOPED_TRACE("device " + std::to_string(device) + " cpu " + std::to_string(cpu));
        const auto weights =
            plan_of({double(device), double(cpu), 100, 0, 100, 0}, {.schedule = schedule}).weights;
        std::size_t bytes = 0;
        for (std::size_t unit = 0; unit < weights.units.size(); ++unit) {
          const auto streamed = weights.streamed(unit);
          const auto from_cpu = weights.from_cpu(unit);
          const auto from_disk = weights.from_disk(unit);
          EXPECT_EQ(from_cpu.size() + from_disk.size(), streamed.size());
          EXPECT_TRUE(from_cpu.empty() || from_disk.empty() || from_cpu.end == from_disk.begin);
          EXPECT_TRUE(from_cpu.empty() || from_cpu.begin == streamed.begin);
          EXPECT_TRUE(from_disk.empty() || from_disk.end == weights.units[unit].end);
          EXPECT_EQ(streamed.begin % kPageBytes, 0u);
          EXPECT_LE(streamed.size(), weights.buffer_bytes);
          bytes += streamed.size();
        }
        EXPECT_EQ(bytes, weights.image.size_bytes() - weights.cut.stream_begin);
      }
    }
  }
}

TEST(WeightPlan, BuffersAreAsLargeAsTheLargestUnit) {
  const auto whole = plan_of({0, 100, 100, 0, 100, 0}).weights;
  EXPECT_EQ(whole.buffer_bytes, whole.image.size_bytes());
  const auto phases =
      plan_of({0, 100, 100, 0, 100, 0}, {.schedule = ScheduleKind::flexgen}).weights;
  // Attention has 15 pages, the MLP the rest of 34.
  EXPECT_EQ(phases.buffer_bytes, 20u * 4096);
  EXPECT_EQ(phases.buffers, 2);
}

TEST(WeightPlan, ResidentWeightsNeedNoBuffers) {
  const auto weights = plan_of({100, 0, 100, 0, 100, 0}).weights;
  EXPECT_EQ(weights.buffers, 0);
  EXPECT_EQ(weights.buffer_bytes, 0u);
  EXPECT_EQ(weights.stagings, 0);
}

TEST(WeightPlan, DiskWeightsAreStagedWhereDisksDoNotReachTheDevice) {
  EXPECT_EQ(plan_of({0, 50, 100, 0, 100, 0}, {.direct = true}).weights.stagings, 0);
  EXPECT_EQ(plan_of({0, 50, 100, 0, 100, 0}, {.direct = false}).weights.stagings, kWeightStagings);
  EXPECT_EQ(plan_of({0, 100, 100, 0, 100, 0}, {.direct = false}).weights.stagings, 0);
}

TEST(StagePlan, TheCpuAttendsWhereTheCacheIsInDramOrPassesThroughIt) {
  const auto attends = [](const Percent& percent, Switch wish, bool direct) {
    auto policy = policy_of(percent);
    policy.cpu_attention = wish;
    return make_plan(shape_of(kBatch), policy, {.direct = direct}, 3, 24, 2).cpu_attention;
  };
  const Percent resident{100, 0, 100, 0, 100, 0};
  const Percent cpu{100, 0, 50, 50, 100, 0};
  const Percent disk{100, 0, 50, 0, 100, 0};
  for (const bool direct : {true, false}) {
    EXPECT_FALSE(attends(resident, Switch::on, direct));
    EXPECT_TRUE(attends(cpu, Switch::automatic, direct));
    EXPECT_FALSE(attends(cpu, Switch::off, direct));
    EXPECT_TRUE(attends(disk, Switch::on, direct));
    EXPECT_FALSE(attends(disk, Switch::off, direct));
  }
  EXPECT_FALSE(attends(disk, Switch::automatic, true));
  EXPECT_TRUE(attends(disk, Switch::automatic, false));
}

TEST(KvPlan, PoolsFollowTheShares) {
  const auto kv = plan_of({100, 0, 25, 50, 100, 0}).kv;
  EXPECT_EQ(kv.pools, (TierCounts{6, 12, 6}));
  EXPECT_TRUE(kv.offloaded());
  EXPECT_EQ(kv.open_slots, 6) << "no more than there are disk pages";
}

TEST(KvPlan, AResidentCacheTakesNoBuffers) {
  const auto plan = plan_of({100, 0, 100, 0, 100, 0});
  EXPECT_FALSE(plan.kv.offloaded());
  EXPECT_EQ(plan.kv.staged + plan.kv.cpu_staged + plan.kv.passing + plan.kv.partials, 0);
  EXPECT_EQ(plan.kv.open_slots, 0);
  EXPECT_EQ(plan.workspaces, 1);
}

TEST(KvPlan, BuffersHoldTheLongestSequencesOfABatch) {
  const auto plan = plan_of({100, 0, 0, 50, 100, 0});
  EXPECT_EQ(plan.kv.staged, 4 * 3);
  EXPECT_EQ(plan.kv.partials, 4 * 3);
  EXPECT_EQ(plan.kv.cpu_staged, 12);
  EXPECT_EQ(plan.kv.passing, 28 / 16);
  EXPECT_EQ(plan.workspaces, 2);
}

TEST(KvPlan, BuffersAreNoLargerThanWhatIsOffTheDevice) {
  const auto plan = make_plan(shape_of(kBatch), policy_of({100, 0, 75, 25, 100, 0}), {}, 3, 8, 2);
  EXPECT_EQ(plan.kv.pools, (TierCounts{6, 2, 0}));
  EXPECT_EQ(plan.kv.staged, 2);
  EXPECT_EQ(plan.kv.partials, 2);
}

TEST(KvPlan, APageIsWholeDiskPages) {
  auto shape = shape_of(kBatch);
  EXPECT_EQ(kv_page_bytes(shape, true), 4096u);  // K and V, 16 tokens, 64 numbers of two bytes
  shape.batch.kv_format = device::KvType::f32;
  EXPECT_EQ(kv_page_bytes(shape, true), 8192u);
  shape.spec.head_dim = 9;
  EXPECT_EQ(kv_page_bytes(shape, true), 8192u);  // 4608, rounded up
}

TEST(KvPlan, PackedPagesTakeWhatTheirCodesTake) {
  auto shape = shape_of(kBatch);
  shape.spec.heads = shape.spec.kv_heads = 4;
  shape.spec.head_dim = 64;
  const auto page = [&](device::KvType type) {
    shape.batch.kv_format = type;
    return static_cast<double>(kv_page_bytes(shape, false));
  };
  const auto f16 = page(device::KvType::f16);
  EXPECT_EQ(page(device::KvType::int4) / f16, 36.0 / 128);  // 32 bytes of codes, 4 of parameters
  EXPECT_EQ(page(device::KvType::int8) / f16, 68.0 / 128);
}

TEST(KvPlan, SparseSequencesOutsideTheDeviceNeedRoomToSelect) {
  auto shape = shape_of(kBatch);
  const auto plan = [&](double sparsity, const Percent& percent, Switch cpu_attention) {
    shape.batch.attention_sparsity = sparsity;
    auto policy = policy_of(percent);
    policy.cpu_attention = cpu_attention;
    return make_plan(shape, policy, {}, 3, 24, 2).kv;
  };
  const Percent outside{100, 0, 50, 50, 100, 0};
  EXPECT_EQ(plan(1, outside, Switch::off).splits, 0);
  EXPECT_EQ(plan(0.5, {}, Switch::off).splits, 0);
  const auto copied = plan(0.5, outside, Switch::off);
  EXPECT_EQ(copied.splits, 4);
  EXPECT_EQ(copied.score_bytes, sizeof(float) * 48u * static_cast<std::size_t>(shape.spec.heads));
  EXPECT_EQ(copied.value_bytes, static_cast<std::size_t>(selected_value_bytes(shape, 47)));
  EXPECT_EQ(plan(0.5, outside, Switch::on).value_bytes, 0u) << "the CPU adds them up";
}

TEST(WeightPlan, PackedLayersTakeWhatTheirCodesTake) {
  auto shape = shape_of(kBatch);
  shape.spec.hidden = 1024;
  shape.spec.heads = shape.spec.kv_heads = 16;
  shape.spec.head_dim = 64;
  shape.spec.ffn = 4096;
  const auto f16 = make_plan(shape, policy_of({0, 100, 100, 0, 100, 0}), {}, 3, 24, 2).weights;
  shape.weights.layers.packing = Packing::int4;
  const auto plan = [&](std::int64_t rows) {
    return make_plan(shape, policy_of({0, 100, 100, 0, 100, 0}), {.packed_product_rows = rows}, 3,
                     24, 2)
        .weights;
  };
  const auto int4 = plan(1 << 20);
  EXPECT_NEAR(static_cast<double>(int4.buffer_bytes) / static_cast<double>(f16.buffer_bytes),
              0.28125, 0.002);
  EXPECT_EQ(int4.wide_bytes, 0u) << "products of all rows read packed weights";
  EXPECT_EQ(plan(8).wide_bytes, 2u * 12 * 1024 * 1024);
}

TEST(HiddenPlan, BatchesLieOnTheDeviceThenTheCpuThenDisk) {
  auto batch = kBatch;
  batch.num_gpu_batches = 4;
  const auto hidden =
      make_plan(shape_of(batch), policy_of({100, 0, 100, 0, 25, 50}), {}, 3, 24, 2).hidden;
  EXPECT_EQ(hidden.tiers, (std::vector<Tier>{Tier::device, Tier::cpu, Tier::cpu, Tier::disk}));
  EXPECT_EQ(hidden.disk_batches, 1);
  EXPECT_TRUE(hidden.work);
  EXPECT_EQ(hidden.device_rows, 28);
  EXPECT_EQ(hidden.cpu_rows, 16 + 24);  // three batches may have all rows of a visit
}

TEST(HiddenPlan, RowsInDramCountThoseOfTheDeviceToo) {
  auto batch = kBatch;
  batch.num_gpu_batches = 4;
  const auto hidden =
      make_plan(shape_of(batch), policy_of({100, 0, 100, 0, 25, 25}), {}, 3, 24, 2).hidden;
  // One batch on the device and one in DRAM have 40 rows at most, which are all of a visit.
  EXPECT_EQ(hidden.device_rows, 28);
  EXPECT_EQ(hidden.cpu_rows, 40);
}

TEST(HiddenPlan, OnTheDeviceAllIsComputedInPlace) {
  const auto hidden = plan_of({100, 0, 100, 0, 100, 0}).hidden;
  EXPECT_FALSE(hidden.work);
  EXPECT_FALSE(hidden.wire_in_cpu);
  EXPECT_EQ(hidden.device_rows, 32);
  EXPECT_EQ(hidden.cpu_rows, 0);
}

TEST(HiddenPlan, AWireFromTheDeviceNeedsNoDramUnlessBatchesAreElsewhere) {
  const auto wire = [](const Percent& percent, ScheduleKind schedule, int stages) {
    const PlanOptions options{.schedule = schedule, .direct = false, .wire_on_device = true};
    return make_plan(shape_of(kBatch, stages), policy_of(percent), options, 3, 24, 2);
  };
  const Percent resident{100, 0, 100, 0, 100, 0};
  for (const auto schedule : {ScheduleKind::rolling, ScheduleKind::flexgen}) {
    const auto plan = wire(resident, schedule, 2);
    EXPECT_TRUE(plan.wire_on_device);
    EXPECT_FALSE(plan.hidden.wire_in_cpu);
    EXPECT_EQ(plan.hidden.cpu_rows, 0);
    EXPECT_EQ(plan.hidden.device_rows, 32);
    EXPECT_TRUE(wire({100, 0, 100, 0, 50, 50}, schedule, 2).hidden.wire_in_cpu);
    EXPECT_TRUE(wire({100, 0, 100, 0, 50, 0}, schedule, 2).hidden.wire_in_cpu);
  }
  EXPECT_FALSE(wire(resident, ScheduleKind::rolling, 1).hidden.wire_in_cpu);
}
TEST(HiddenPlan, TheWireIsInDramWhereTheDeviceIsNotAllOfIt) {
  const auto wire = [](const Percent& percent, bool direct, int stages) {
    return make_plan(shape_of(kBatch, stages), policy_of(percent), {.direct = direct}, 3, 24, 2)
        .hidden;
  };
  const Percent resident{100, 0, 100, 0, 100, 0};
  const Percent split{100, 0, 100, 0, 50, 50};
  EXPECT_FALSE(wire(resident, true, 2).wire_in_cpu);
  EXPECT_TRUE(wire(resident, false, 2).wire_in_cpu);
  EXPECT_EQ(wire(resident, false, 2).cpu_rows, 32);
  EXPECT_TRUE(wire(split, true, 2).wire_in_cpu);
  EXPECT_FALSE(wire(split, false, 1).wire_in_cpu) << "one stage has no wire";
}

TEST(StagePlan, IsAPureFunctionOfItsArguments) {
  const auto first = plan_of({20, 30, 40, 50, 0, 60});
  const auto again = plan_of({20, 30, 40, 50, 0, 60});
  EXPECT_EQ(first.kv.pools, again.kv.pools);
  EXPECT_EQ(first.weights.cut.device_end, again.weights.cut.device_end);
  EXPECT_EQ(first.hidden.tiers, again.hidden.tiers);
}

}  // namespace
}  // namespace stagecoach::stage
