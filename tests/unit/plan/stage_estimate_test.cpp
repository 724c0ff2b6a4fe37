#include "plan/stage_estimate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/abort_signal.hpp"
#include "base/error.hpp"
#include "comm/loopback_transport.hpp"
#include "job/stage_setup.hpp"
#include "stage/partition.hpp"
#include "stage/setup_rules.hpp"
#include "support/temp_folder.hpp"
#include "unit/plan/machines.hpp"

namespace stagecoach::plan {
namespace {

using offload::Tier;
using testing::kMiB;

constexpr int kStages = 2;

/// What a job of two stages on this machine plans: its own classes, in its own order.
std::vector<stage::MemoryReport> reports_of_a_job(const job::JobConfig& config,
                                                  const model::ModelSpec& spec,
                                                  const Workload& requests) {
  job::ModelAccess model;
  model.spec = spec;
  model.weights = offload::make_dummy_source(1);
  AbortSignal abort;
  comm::LoopbackHub hub(kStages, {}, abort);
  std::vector<std::unique_ptr<comm::Transport>> transports;
  std::vector<std::unique_ptr<job::StageSetup>> setups;
  std::vector<stage::SequenceLength> lengths;
  for (const auto& request : requests) {
    lengths.push_back({request.prompt, request.prompt + request.generated - 1});
  }
  std::int64_t pages = 1 << 30;
  for (int k = 0; k < kStages; ++k) {
    transports.push_back(hub.transport(k));
    setups.push_back(std::make_unique<job::StageSetup>(config, model, *transports.back(),
                                                       config.threads, abort));
    setups.back()->plan(stage::demand_of(lengths, setups.back()->shape().batch), {});
    pages = std::min(pages, setups.back()->memory().kv_pages_per_layer);
  }
  std::vector<stage::MemoryReport> reports;
  for (auto& setup : setups) {
    setup->settle(pages);
    reports.push_back(setup->memory());
  }
  return reports;
}

NodeProfile this_machine(const job::JobConfig& config) {
  auto node = testing::host_node();
  node.threads = config.threads;
  node.pinned_mem_bytes = 0;
  return node;
}

std::vector<stage::PlannedStage> estimate(const job::JobConfig& config,
                                          const model::ModelSpec& spec, const Workload& requests) {
  const auto batch = stage::shape_for(config.batch, config.schedule, kStages);
  std::vector<stage::StageShape> shapes;
  for (const auto& part : stage::partition_layers(spec.layers, kStages, {})) {
    shapes.push_back({.spec = spec, .contents = part, .batch = batch});
  }
  return plan_stages(shapes, config.policies, make_cluster({this_machine(config)}, kStages, 1),
                     requests, config.schedule, config.overlap);
}

struct Case {
  const char* name;
  stage::Percent percent;
  stage::ScheduleKind schedule = stage::ScheduleKind::rolling;
  std::size_t device_mem = 0;
  stage::Switch cpu_attention = stage::Switch::automatic;
};

class EstimateOfAJob : public ::testing::TestWithParam<Case> {};

TEST_P(EstimateOfAJob, HasTheLinesOfItsReport) {
  const auto& given = GetParam();
  const testing::TempFolder folder;
  const auto spec = testing::model_of(5, 256);
  const Workload requests = {{70, 30}, {10, 100}, {300, 5}, {40, 40}, {80, 1}, {33, 20}, {5, 9}};
  job::JobConfig config;
  config.device = "host";
  config.threads = 3;
  config.stages = kStages;
  config.inner_iterations_given = true;
  config.batch = {
      .gpu_batch_size = 2, .num_gpu_batches = 2, .inner_iterations = 3, .prefill_piece = 40};
  config.schedule = given.schedule;
  auto& policy = config.policies.front();
  policy.percent = given.percent;
  policy.offload_dir = folder.path();
  policy.device_mem_bytes = given.device_mem;
  policy.cpu_attention = given.cpu_attention;

  const auto real = reports_of_a_job(config, spec, requests);
  const auto estimated = estimate(config, spec, requests);
  ASSERT_EQ(estimated.size(), real.size());
  for (std::size_t k = 0; k < real.size(); ++k) {
    const auto& mine = estimated[k].memory;
    EXPECT_EQ(mine.kv_pages_per_layer, real[k].kv_pages_per_layer);
    ASSERT_EQ(mine.lines.size(), real[k].lines.size());
    for (std::size_t i = 0; i < mine.lines.size(); ++i) {
      EXPECT_EQ(mine.lines[i].what, real[k].lines[i].what);
      EXPECT_EQ(mine.lines[i].tier, real[k].lines[i].tier);
      EXPECT_EQ(mine.lines[i].size_bytes, real[k].lines[i].size_bytes) << mine.lines[i].what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Policies, EstimateOfAJob,
    ::testing::Values(
        Case{.name = "resident", .percent = {}},
        Case{.name = "mixed", .percent = {30, 70, 20, 50, 50, 50}},
        Case{.name = "disk", .percent = {60, 40, 0, 20, 0, 0}},
        Case{.name = "disk_attended",
             .percent = {60, 40, 0, 0, 0, 100},
             .cpu_attention = stage::Switch::on},
        // Room for the longest request and some more, so that pages are cut and buffers too.
        Case{.name = "few_pages", .percent = {0, 100, 100, 0, 100, 0}, .device_mem = 14 * kMiB},
        Case{.name = "zigzag",
             .percent = {50, 50, 50, 50, 100, 0},
             .schedule = stage::ScheduleKind::zigzag},
        Case{.name = "flexgen",
             .percent = {50, 50, 0, 50, 0, 100},
             .schedule = stage::ScheduleKind::flexgen}),
    [](const auto& info) { return info.param.name; });

TEST(Estimate, CutsPagesOnlyWhereTheyDoNotFit) {
  // The case above would say nothing if all pages fitted.
  job::JobConfig config;
  config.threads = 3;
  config.batch = {
      .gpu_batch_size = 2, .num_gpu_batches = 2, .inner_iterations = 3, .prefill_piece = 40};
  config.policies.front().percent = {0, 100, 100, 0, 100, 0};
  const Workload requests(12, {300, 5});
  const auto spec = testing::model_of(5, 256);
  EXPECT_EQ(estimate(config, spec, requests).front().memory.kv_pages_per_layer, 12 * 19);
  config.policies.front().device_mem_bytes = 14 * kMiB;
  EXPECT_LT(estimate(config, spec, requests).front().memory.kv_pages_per_layer, 12 * 19);
}

TEST(Estimate, NamesTheStageThatDoesNotFit) {
  job::JobConfig config;
  config.threads = 1;
  config.policies.resize(2);
  config.policies[1].device_mem_bytes = kMiB;
  try {
    estimate(config, testing::model_of(4, 256), {{10, 10}});
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 9), "stage 1: ");
  }
}

TEST(Budgets, AreTheProfilesUnlessThePolicyHasOthers) {
  const auto node = testing::gpu_node();
  const auto plain = budgets_for(node, {});
  EXPECT_EQ(plain.device, node.device_mem_bytes);
  EXPECT_EQ(plain.cpu, node.cpu_mem_bytes);
  EXPECT_EQ(plain.pinned, node.pinned_mem_bytes);
  EXPECT_EQ(plain.disk, node.disk_mem_bytes);
  EXPECT_EQ(plain.together, 0U);
  stage::Policy policy;
  policy.device_mem_bytes = 5;
  policy.cpu_mem_bytes = 6;
  policy.disk_mem_bytes = 7;
  const auto given = budgets_for(node, policy);
  EXPECT_EQ(given.device, 5U);
  EXPECT_EQ(given.cpu, 6U);
  EXPECT_EQ(given.pinned, 6U);  // part of the CPU's
  EXPECT_EQ(given.disk, 7U);
}

TEST(Budgets, OfAHostAreOneMemory) {
  const auto node = testing::host_node();
  const auto budgets = budgets_for(node, {});
  EXPECT_EQ(budgets.together, node.cpu_mem_bytes);
  EXPECT_EQ(budgets.device, budgets.together);
  EXPECT_EQ(budgets.cpu, budgets.together);
}

TEST(Options, OfAGpuHaveItsCopies) {
  const auto gpu = options_for(testing::gpu_node(), stage::ScheduleKind::zigzag, true);
  EXPECT_FALSE(gpu.direct);
  EXPECT_TRUE(gpu.pin_copied);
  EXPECT_EQ(gpu.packed_product_rows, 8);
  const auto host = options_for(testing::host_node(), stage::ScheduleKind::zigzag, false);
  EXPECT_TRUE(host.direct);
  EXPECT_FALSE(host.pin_copied);
  EXPECT_FALSE(host.overlap);
}

}  // namespace
}  // namespace stagecoach::plan
