#include "cli/job_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run_options.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::cli {
namespace {

using stage::Switch;
using stagecoach::testing::TempFolder;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kMiB = std::size_t{1} << 20;

stage::PlannedStage stage_of(const stage::Policy& policy, std::int64_t buffers) {
  stage::PlannedStage stage;
  stage.plan.policy = policy;
  stage.plan.weights.buffers = buffers;
  stage.memory.lines = {{offload::Tier::device, "weights", 1000 * kMiB},
                        {offload::Tier::cpu, "weights", 500 * kMiB}};
  stage.memory.budgets.device = 4000 * kMiB;
  stage.memory.budgets.cpu = 510 * kMiB;
  return stage;
}

/// Numbers that a rounded text would not have.
plan::JobPlan made_up() {
  plan::JobPlan plan;
  plan.batch = {.gpu_batch_size = 24,
                .num_gpu_batches = 6,
                .inner_iterations = 5,
                .prefill_piece = 300,
                .page_tokens = 32};
  plan.batch.kv_format = {device::KvType::int8, 64};
  plan.weights.layers = {Packing::int4, 64};
  plan.schedule = stage::ScheduleKind::zigzag;
  plan.layers_per_stage = {13, 11};
  stage::Policy first;
  first.percent = {100.0 / 3, 200.0 / 3, 0.1, 99.9, 0, 100};
  first.cpu_attention = Switch::on;
  stage::Policy second;
  second.percent = {0, 10, 20, 30, 100, 0};
  second.device_mem_bytes = 123'456'789;
  second.offload_dir = "/scratch";
  second.cpu_attention = Switch::off;
  plan.stages = {stage_of(first, 0), stage_of(second, 2)};
  plan.simulated.seconds = 1;
  plan.simulated.stages.resize(2);
  plan.seconds = 1;
  return plan;
}

job::JobConfig read_back(const std::string& text) {
  const TempFolder folder;
  return read_run_options({"--config", folder.write("job.ini", text), "--model", "m.h5",
                           "--prompts", "p", "--output", "o"},
                          1)
      .value();
}

/// The first stage gets 1000 MiB, a fiftieth and 32 MiB; of DRAM all 510 MiB that there are.
TEST(JobFile, BudgetsAreWhatIsTakenAndALittleMore) {
  const auto policies = settled_policies(made_up());
  EXPECT_EQ(policies[0].device_mem_bytes, 1052 * kMiB);
  EXPECT_EQ(policies[0].cpu_mem_bytes, 510 * kMiB);
  EXPECT_EQ(policies[0].disk_mem_bytes, 0u);
  EXPECT_EQ(policies[1].device_mem_bytes, 123'456'789u) << "as it was given";
}

/// 1508 MiB for both, of which 8 are left: 4 for each.
TEST(JobFile, DeviceAndCpuShareOneMemory) {
  auto plan = made_up();
  for (auto& stage : plan.stages) {
    stage.memory.budgets.together = 1508 * kMiB;
    stage.memory.budgets.device = stage.memory.budgets.cpu = stage.memory.budgets.together;
  }
  const auto policies = settled_policies(plan);
  EXPECT_EQ(policies[0].device_mem_bytes, 1004 * kMiB);
  EXPECT_EQ(policies[0].cpu_mem_bytes, 504 * kMiB);
}

TEST(JobFile, ReadingItGivesThePlan) {
  const auto plan = made_up();
  const auto config = read_back(format_job_file(plan, {}));
  EXPECT_EQ(config.stages, 2);
  EXPECT_EQ(config.policies, settled_policies(plan));
  EXPECT_EQ(config.policies[0].percent, plan.stages[0].plan.policy.percent);
  EXPECT_EQ(config.policies[1].weight_buffers, 2);
  EXPECT_EQ(config.layers_per_stage, plan.layers_per_stage);
  EXPECT_EQ(config.schedule, plan.schedule);
  EXPECT_EQ(config.batch.gpu_batch_size, 24);
  EXPECT_EQ(config.batch.num_gpu_batches, 6);
  EXPECT_EQ(config.batch.inner_iterations, 5);
  EXPECT_TRUE(config.inner_iterations_given);
  EXPECT_EQ(config.batch.prefill_piece, 300);
  EXPECT_EQ(config.batch.page_tokens, 32);
  EXPECT_EQ(config.batch.kv_format, plan.batch.kv_format);
  EXPECT_EQ(config.compression.weights, Packing::int4);
}

/// 'run --plan auto' and 'plan --out' with 'run --config' are one and the same job.
TEST(JobFile, IsWhatApplyingThePlanGives) {
  const auto plan = made_up();
  auto applied = read_back("stages = 2\n");
  apply_plan(plan, {}, applied);
  EXPECT_EQ(job::to_json(applied), job::to_json(read_back(format_job_file(plan, {}))));
}

TEST(JobFile, WeightsThatArePackedInTheStoreStayAsTheyAre) {
  const auto plan = made_up();
  const auto text = format_job_file(plan, plan.weights);
  EXPECT_THAT(text, Not(HasSubstr("compress-weights")));
  EXPECT_THAT(text, HasSubstr("compress-cache = int8"));
  auto applied = read_back("stages = 2\n");
  apply_plan(plan, plan.weights, applied);
  EXPECT_FALSE(applied.compression.weights.has_value());
  EXPECT_EQ(job::to_json(applied), job::to_json(read_back(text)));
}

}  // namespace
}  // namespace stagecoach::cli
