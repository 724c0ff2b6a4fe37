// What a visit costs on a virtual clock when compute and transfers take time.

#include <gtest/gtest.h>

#include "unit/stage/specs.hpp"
#include "unit/stage/virtual_pipeline.hpp"

namespace stagecoach::stage {
namespace {

constexpr int kLayers = 4;
constexpr int kBatches = 4;
constexpr int kTokens = 50;

struct Costs {
  double compute = 0;  ///< of a layer, over all its GPU batches
  double weights = 0;  ///< of streaming a layer
  double cache = 0;    ///< of loading a layer's pages, over all GPU batches
};

/// Time a visit takes in the middle of a job of decoding blocks.
double visit_time(const Costs& costs, ScheduleKind schedule, bool overlap, Percent percent,
                  std::int64_t buffers = 2) {
  BatchShape shape{.gpu_batch_size = 1, .num_gpu_batches = kBatches, .prefill_piece = 64};
  if (schedule != ScheduleKind::rolling) {
    shape.admission = Admission::whole;
    shape.longest_prompt = 1;
  }
  Policy policy;
  policy.percent = percent;
  policy.cpu_attention = Switch::off;
  double layer_bytes = 0;
  const auto work = [&](const Step& step) {
    switch (step.kind) {
      case StepKind::attention_in:
      case StepKind::mlp:
        return costs.compute / kBatches / 2;
      case StepKind::read_weights:
      case StepKind::load_weights:
        return costs.weights * static_cast<double>(step.range.size()) / layer_bytes;
      case StepKind::load_kv:
        return costs.cache / kBatches;
      default:
        return 0.0;
    }
  };
  const testing::VirtualStages stages{.spec = testing::small_spec(kLayers),
                                      .shape = shape,
                                      .policy = policy,
                                      .options = {schedule, overlap, true},
                                      .weight_buffers = buffers};
  layer_bytes =
      static_cast<double>(offload::LayerImage(model::layer_tensors(stages.spec)).size_bytes());
  const auto run =
      testing::run_virtual_pipeline(stages, std::vector<std::int64_t>(kBatches, 1),
                                    std::vector<std::int64_t>(kBatches, kTokens), {.work = work});
  return run.end / kTokens / kLayers;
}

constexpr Percent kWeightsOnDisk = {0, 0, 100, 0, 100, 0};
constexpr Percent kCacheInDram = {100, 0, 0, 100, 100, 0};

TEST(Overlap, AVisitCostsTheLongerOfComputeAndWeights) {
  EXPECT_NEAR(visit_time({.compute = 1, .weights = 1}, ScheduleKind::rolling, true, kWeightsOnDisk),
              1, 0.02);
  EXPECT_NEAR(
      visit_time({.compute = 1, .weights = 0.4}, ScheduleKind::zigzag, true, kWeightsOnDisk), 1,
      0.02);
  EXPECT_NEAR(
      visit_time({.compute = 0.3, .weights = 1}, ScheduleKind::rolling, true, kWeightsOnDisk), 1,
      0.02);
}

TEST(Overlap, WithoutItAVisitCostsTheirSum) {
  EXPECT_NEAR(
      visit_time({.compute = 1, .weights = 1}, ScheduleKind::rolling, false, kWeightsOnDisk), 2,
      0.02);
  EXPECT_NEAR(
      visit_time({.compute = 1, .weights = 1}, ScheduleKind::rolling, true, kWeightsOnDisk, 1), 2,
      0.02);
}

// All of a phase's weights are waited for after the first of four GPU batches: of the compute only
// that one's hides them.
TEST(Overlap, FlexgenHidesWeightsBehindOneGpuBatchOnly) {
  EXPECT_NEAR(visit_time({.compute = 1, .weights = 1}, ScheduleKind::flexgen, true, kWeightsOnDisk),
              1.75, 0.03);
}

TEST(Overlap, PagesLoadWhileTheBatchBeforeIsComputed) {
  EXPECT_NEAR(visit_time({.compute = 1, .cache = 1}, ScheduleKind::rolling, true, kCacheInDram), 1,
              0.1);
  EXPECT_NEAR(visit_time({.compute = 1, .cache = 1}, ScheduleKind::rolling, false, kCacheInDram), 2,
              0.05);
}

}  // namespace
}  // namespace stagecoach::stage
