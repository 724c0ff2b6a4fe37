#include <gtest/gtest.h>

#include "plan/cost_model.hpp"

namespace stagecoach::plan {
namespace {

using stage::Step;
using stage::StepKind;

/// Layers of 64 inputs, 4 heads of 16, MLPs of 256; the cache of 128 pages of 16 tokens, half of it
/// in DRAM.
stage::StagePlan plan_with(device::KvType cache, Packing weights, double cache_cpu = 50) {
  stage::StageShape shape;
  shape.spec.layers = 2;
  shape.spec.hidden = 64;
  shape.spec.heads = 4;
  shape.spec.kv_heads = 4;
  shape.spec.head_dim = 16;
  shape.spec.ffn = 256;
  shape.spec.vocab = 128;
  shape.spec.max_positions = 512;
  shape.contents.layers = 2;
  shape.batch.kv_format = cache;
  shape.weights.layers.packing = weights;
  stage::Policy policy;
  policy.percent.cache_device = 50;
  policy.percent.cache_cpu = cache_cpu;
  stage::PlanOptions options;
  options.direct = false;
  options.pin_copied = true;
  options.packed_product_rows = 0;
  return stage::make_plan(shape, policy, options, 8, 128, 2);
}

/// A GPU that takes no time for anything but what a test sets.
NodeProfile node() {
  NodeProfile profile;
  profile.gpu = true;
  profile.pinned_mem_bytes = std::size_t{1} << 40;
  profile.memory_bytes_per_second = 1e30;
  profile.copies = {8, 4, 2, 1, 10};
  profile.disk = {Curve(1), Curve(1), 1};
  for (const auto packing : {Packing::none, Packing::int4}) {
    profile.formats[packing] = {{{64, Curve(1e30)}}, 1e30};
  }
  for (const auto type : {device::KvType::f16, device::KvType::int4}) {
    profile.caches[type] = {Curve(1e30), Curve(1e30), 100};
  }
  profile.prompt_attention_flops = 1e30;
  profile.row_bytes_per_second = 1e30;
  profile.sampled_logits_per_second = 1e30;
  return profile;
}

/// Seconds of a step of the first GPU batch, of 3 rows.
double seconds_of(const NodeProfile& profile, const stage::StagePlan& plan, StepKind kind,
                  std::int64_t bytes = 0, double flops = 0, double device_tokens = 0) {
  Step step;
  step.kind = kind;
  step.gpu_batch = 0;
  step.rows = 3;
  step.bytes = bytes;
  step.flops = flops;
  BatchLoad load;
  load.device_tokens = device_tokens;
  return CostModel(profile, plan).of(step, {load}).seconds;
}

TEST(SoftwareTraits, KeysAndValuesAloneGoStraightIntoTheirPages) {
  const auto plan = plan_with(device::KvType::f16, Packing::none);
  auto profile = node();
  // 3 rows of query, key and value of 64 numbers in f32, at 2 bytes a second; then stored at 100
  EXPECT_DOUBLE_EQ(seconds_of(profile, plan, StepKind::save_rows, 2304), 1152);
  EXPECT_DOUBLE_EQ(seconds_of(profile, plan, StepKind::store_kv, 2304), 23.04);
  profile.software.saves_query = false;
  // 3 rows of key and value of 64 numbers in f16
  EXPECT_DOUBLE_EQ(seconds_of(profile, plan, StepKind::save_rows, 2304), 384);
  EXPECT_DOUBLE_EQ(seconds_of(profile, plan, StepKind::store_kv, 2304), 0);
}

TEST(SoftwareTraits, TheCpuGivesOneResultOfASequence) {
  const auto plan = plan_with(device::KvType::f16, Packing::none);
  auto profile = node();
  EXPECT_DOUBLE_EQ(seconds_of(profile, plan, StepKind::load_partials, 8000), 1000);
  profile.software.page_results = false;
  profile.software.hidden_bytes = 2;
  // 3 sequences of 64 numbers of 2 bytes, at 8 bytes a second
  EXPECT_DOUBLE_EQ(seconds_of(profile, plan, StepKind::load_partials, 8000), 48);
}

TEST(SoftwareTraits, TheCacheInDramIsCopiedAtItsOwnRate) {
  auto profile = node();
  const auto in_dram = plan_with(device::KvType::f16, Packing::none);
  EXPECT_DOUBLE_EQ(seconds_of(profile, in_dram, StepKind::load_kv, 80), 10);
  profile.software.cache_bytes_per_second = 2;
  EXPECT_DOUBLE_EQ(seconds_of(profile, in_dram, StepKind::load_kv, 80), 40);
  // What comes from disk, here all, or half of what is not on the device, does not.
  const auto on_disk = plan_with(device::KvType::f16, Packing::none, 0);
  EXPECT_DOUBLE_EQ(seconds_of(profile, on_disk, StepKind::load_kv, 80), 10);
  const auto both = plan_with(device::KvType::f16, Packing::none, 25);
  EXPECT_DOUBLE_EQ(seconds_of(profile, both, StepKind::load_kv, 80), 25);
}

TEST(SoftwareTraits, EachGpuBatchWidensItsWeightsAnew) {
  const auto plan = plan_with(device::KvType::f16, Packing::int4);
  auto profile = node();
  profile.formats[Packing::int4].widen = 64;
  const auto wide = static_cast<double>(plan.weights.wide_bytes);
  ASSERT_GT(wide, 0);
  // 4 * 64 * 256 * 3 operations: the MLP's 2 * 64 * 256 weights, of 2 bytes when widened
  const double flops = 196608;
  EXPECT_DOUBLE_EQ(seconds_of(profile, plan, StepKind::widen_weights), wide / 64);
  EXPECT_NEAR(seconds_of(profile, plan, StepKind::mlp, 0, flops), 0, 1e-9);
  profile.software.widens_each_batch = true;
  EXPECT_DOUBLE_EQ(seconds_of(profile, plan, StepKind::widen_weights), 0);
  EXPECT_DOUBLE_EQ(seconds_of(profile, plan, StepKind::mlp, 0, flops), 1024);
}

TEST(SoftwareTraits, EachGpuBatchWidensItsCacheAnewThoughWeightsAreNotPacked) {
  const auto plan = plan_with(device::KvType::int4, Packing::none);
  auto profile = node();
  profile.formats[Packing::int4].widen = 64;
  EXPECT_NEAR(seconds_of(profile, plan, StepKind::attention, 0, 0, 97), 0, 1e-9);
  profile.software.widens_each_batch = true;
  // 97 earlier positions and 3 new ones, each a key and a value of 64 numbers of 2 bytes
  EXPECT_DOUBLE_EQ(seconds_of(profile, plan, StepKind::attention, 0, 0, 97), 400);
  EXPECT_NEAR(seconds_of(profile, plan_with(device::KvType::f16, Packing::none),
                         StepKind::attention, 0, 0, 97),
              0, 1e-9);
}

}  // namespace
}  // namespace stagecoach::plan
