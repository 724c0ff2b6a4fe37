// The whole pipeline on a virtual clock: do stages wait for want of work?

#include <gtest/gtest.h>

#include "unit/stage/specs.hpp"
#include "unit/stage/virtual_pipeline.hpp"

namespace stagecoach::stage {
namespace {

/// Each visit costs a stage one unit for each of its layers, whatever it carries.
double unit_cost(const Step& step) {
  return step.kind == StepKind::mlp && step.gpu_batch == 0 ? 1.0 : 0.0;
}

struct Job {
  std::vector<std::int64_t> prompts, new_tokens;
};

/// Many more requests than places, of very different lengths.
Job mixed_job(std::size_t requests) {
  Job job;
  for (std::size_t i = 0; i < requests; ++i) {
    job.prompts.push_back(static_cast<std::int64_t>(1 + i * 37 % 90));
    job.new_tokens.push_back(static_cast<std::int64_t>(1 + i * 13 % 29));
  }
  return job;
}

testing::VirtualRun run(int stages, std::int64_t inner_iterations, const Job& job, double wire) {
  const BatchShape shape{.gpu_batch_size = 2,
                         .num_gpu_batches = 2,
                         .inner_iterations = inner_iterations,
                         .prefill_piece = 64};
  return testing::run_virtual_pipeline(
      {.spec = testing::small_spec(stages * 2), .stages = stages, .shape = shape}, job.prompts,
      job.new_tokens, {.work = unit_cost, .wire = wire, .token_return = wire});
}

/// Visits made before the last request got its place: until then the job is in its steady state.
std::int64_t steady_visits(const testing::VirtualRun& run, std::size_t requests) {
  std::size_t started = 0;
  for (const auto& visit : run.visits) {
    for (const auto& entry : visit.entries) {
      started += entry.first_position == 0 ? 1 : 0;
    }
    if (started == requests) {
      return visit.number;
    }
  }
  return 0;
}

TEST(Pipeline, NoStageIsEverIdleWhileRequestsWait) {
  for (int stages = 1; stages <= 4; ++stages) {
    const auto result = run(stages, default_inner_iterations(stages), mixed_job(200), 0.25);
    const auto steady = steady_visits(result, 200);
    ASSERT_GT(steady, 100);
    for (const auto& stage : result.stages) {
      EXPECT_GT(stage.busy(steady), 200);
      // One stage alone has nothing to hide the return of its tokens behind.
      EXPECT_NEAR(stage.idle(steady), stages == 1 ? 0.25 * static_cast<double>(steady - 1) : 0,
                  1e-9)
          << stages;
    }
  }
}

TEST(Pipeline, TooFewBlocksInFlightStarveIt) {
  const auto result = run(3, 2, mixed_job(200), 0.25);
  const auto steady = steady_visits(result, 200);
  for (const auto& stage : result.stages) {
    EXPECT_GT(stage.idle(steady), 0.3 * stage.busy(steady));
  }
}

TEST(Pipeline, EndedSequencesCostNothing) {
  // One long request and many short ones: once the short ones are over, visits carry one row.
  Job job{{4}, {60}};
  for (int i = 0; i < 6; ++i) {
    job.prompts.push_back(4);
    job.new_tokens.push_back(2);
  }
  const auto result = run(2, 3, job, 0);
  EXPECT_EQ(result.visits.back().rows(), 1);
  std::int64_t rows = 0;
  for (const auto& visit : result.visits) {
    rows += visit.rows();
  }
  // Every prompt token once, and every generated token but the last of each request.
  EXPECT_EQ(rows, 7 * 4 + 59 + 6 * 1);
}

}  // namespace
}  // namespace stagecoach::stage
