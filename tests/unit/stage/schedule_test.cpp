#include "stage/schedule.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stage/partition.hpp"
#include "stage/schedule_checker.hpp"
#include "unit/stage/specs.hpp"
#include "unit/stage/virtual_pipeline.hpp"

namespace stagecoach::stage {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

VisitEntry entry(std::int32_t slot, std::size_t tokens) {
  VisitEntry made;
  made.slot = slot;
  made.tokens.assign(tokens, 1);
  return made;
}

StageShape stage_shape(std::int64_t layers, int stages, int stage, std::int64_t gpu_batch_size) {
  const auto spec = testing::small_spec(layers);
  return {.spec = spec,
          .contents = partition_layers(layers, stages, {})[static_cast<std::size_t>(stage)],
          .batch = {.gpu_batch_size = gpu_batch_size, .num_gpu_batches = 2}};
}

std::vector<std::string> kinds(const VisitSchedule& schedule) {
  std::vector<std::string> names;
  for (const auto& step : schedule.steps) {
    auto name = to_string(step.kind);
    if (step.layer >= 0) {
      name += fmt::format(" {}", step.layer);
    }
    if (step.gpu_batch >= 0) {
      name += fmt::format("/{}", step.gpu_batch);
    }
    names.push_back(name);
  }
  return names;
}

TEST(CutIntoBatches, GoesBySlotAndLeavesEmptyBatchesOut) {
  const auto batches = cut_into_batches({entry(0, 3), entry(1, 1), entry(5, 2)}, 2);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].num_entries, 2);
  EXPECT_EQ(batches[0].num_rows, 4);
  EXPECT_EQ(batches[1].first_entry, 2);
  EXPECT_EQ(batches[1].first_row, 4);
  EXPECT_EQ(batches[1].num_rows, 2);
}

TEST(Scheduler, OneStageEmbedsComputesLayerByLayerAndSamples) {
  Scheduler scheduler(stage_shape(2, 1, 0, 2));
  Visit visit;
  visit.entries = {entry(0, 3), entry(2, 1)};
  EXPECT_EQ(kinds(scheduler.next(visit)),
            (std::vector<std::string>{"embed/0", "embed/1", "layer 0/0", "layer 0/1", "layer 1/0",
                                      "layer 1/1", "head/0", "head/1", "send_tokens"}));
}

TEST(Scheduler, AMiddleStageReceivesComputesAndSends) {
  Scheduler scheduler(stage_shape(3, 3, 1, 4));
  Visit visit;
  visit.entries = {entry(0, 3), entry(2, 1)};
  const auto schedule = scheduler.next(visit);
  EXPECT_EQ(kinds(schedule),
            (std::vector<std::string>{"send_plan", "receive_hidden", "layer 0/0", "send_hidden"}));
  EXPECT_EQ(schedule.steps[1].bytes, 4 * 64 * 4);
  EXPECT_EQ(schedule.steps[3].bytes, 4 * 64 * 4);
}

TEST(Scheduler, CountsTheWorkOfALayer) {
  // Four 64 x 64 matrices and two of 64 x 256: 49152 multiply-adds a row.
  EXPECT_DOUBLE_EQ(layer_flops(testing::small_spec(1), 1, 0), 2.0 * 49152);
  EXPECT_DOUBLE_EQ(layer_flops(testing::small_spec(1), 3, 0), 6.0 * 49152);
  // Each attended position costs two products of 64 numbers.
  EXPECT_DOUBLE_EQ(layer_flops(testing::small_spec(1), 0, 10), 10 * 4.0 * 64);
  Scheduler scheduler(stage_shape(1, 1, 0, 4));
  Visit visit;
  visit.entries = {entry(0, 3)};
  visit.entries[0].first_position = 5;  // rows attend to 6, 7 and 8 positions
  EXPECT_DOUBLE_EQ(scheduler.next(visit).steps[1].flops, 6.0 * 49152 + 21 * 4.0 * 64);
}

TEST(Scheduler, AReceiveWaitsOnlyForTheSendThatFreesItsBuffer) {
  Scheduler scheduler(stage_shape(3, 3, 1, 4));
  Visit visit;
  visit.entries = {entry(0, 1)};
  for (visit.number = 0; visit.number < kHiddenRing; ++visit.number) {
    EXPECT_THAT(scheduler.next(visit).steps[1].waits, IsEmpty());
  }
  const auto waits = scheduler.next(visit).steps[1].waits;
  // The send of visit 0 comes after its compute, which the list may also name.
  EXPECT_THAT(waits, ::testing::Contains(StepId{0, 3}));
  for (const auto& wait : waits) {
    EXPECT_EQ(wait.visit, 0);
  }
}

/// All steps of a stage over a random-looking job.
std::vector<Step> steps_of_stage(int stages, int stage) {
  const BatchShape shape{.gpu_batch_size = 2,
                         .num_gpu_batches = 2,
                         .inner_iterations = stages + 1,
                         .prefill_piece = 5};
  const auto run = testing::run_virtual_pipeline(
      testing::small_spec(4), stages, shape, 100, {3, 9, 1, 14, 5, 2, 8, 1, 1, 20, 4, 4},
      {2, 1, 6, 3, 3, 1, 4, 4, 9, 2, 5, 1},
      {.compute = [](const Step&) { return 1.0; }, .wire = 0.5, .token_return = 0.5});
  return run.stages[static_cast<std::size_t>(stage)].steps;
}

TEST(ScheduleChecker, FindsNoFaultInAnyStage) {
  for (int stages = 1; stages <= 4; ++stages) {
    for (int stage = 0; stage < stages; ++stage) {
      const auto steps = steps_of_stage(stages, stage);
      EXPECT_GT(steps.size(), 50u);
      EXPECT_THAT(check_schedule(steps), IsEmpty()) << stage << " of " << stages;
    }
  }
}

TEST(ScheduleChecker, FindsEveryMissingWait) {
  auto steps = steps_of_stage(3, 1);
  int found = 0;
  for (auto& step : steps) {
    for (std::size_t i = 0; i < step.waits.size(); ++i) {
      const auto removed = step.waits[i];
      step.waits.erase(step.waits.begin() + static_cast<std::ptrdiff_t>(i));
      const bool fault = !check_schedule(steps).empty();
      step.waits.insert(step.waits.begin() + static_cast<std::ptrdiff_t>(i), removed);
      // A wait may be implied by another one; sends and receives have the only ones that are not.
      found += fault ? 1 : 0;
    }
  }
  EXPECT_GT(found, 20);
}

TEST(ScheduleChecker, NamesAnUnorderedPair) {
  auto steps = steps_of_stage(2, 1);
  for (auto& step : steps) {
    if (step.kind == StepKind::layer) {
      step.waits.clear();
    }
  }
  EXPECT_THAT(
      check_schedule(steps).at(0),
      HasSubstr("nothing orders visit 0 step 0 (receive_hidden) and visit 0 step 1 (layer)"));
}

TEST(ScheduleChecker, RefusesAWaitForALaterStep) {
  auto steps = steps_of_stage(2, 0);
  steps[1].waits.push_back({99, 0});
  EXPECT_THAT(check_schedule(steps).at(0), HasSubstr("does not come before it"));
}

}  // namespace
}  // namespace stagecoach::stage
