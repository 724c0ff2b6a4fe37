#include "plan/simulation.hpp"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "plan/cost_model.hpp"
#include "plan/stage_estimate.hpp"
#include "plan/trace.hpp"
#include "stage/partition.hpp"
#include "unit/plan/machines.hpp"
#include "unit/stage/virtual_pipeline.hpp"

namespace stagecoach::plan {
namespace {

using stage::Resource;
using testing::gpu_node;
using testing::host_node;

struct Job {
  std::vector<stage::StagePlan> plans;
  Cluster cluster;
  Workload requests;
  std::int64_t pages = 0;
};

Job make_job(const NodeProfile& node, int stages, int stages_a_node, const stage::Percent& percent,
             stage::BatchShape batch, const Workload& requests,
             stage::ScheduleKind schedule = stage::ScheduleKind::rolling) {
  Job job{
      .plans = {}, .cluster = make_cluster({node}, stages, stages_a_node), .requests = requests};
  const auto spec = testing::model_of(8, 512);
  batch = stage::shape_for(batch, schedule, stages);
  std::vector<stage::StageShape> shapes;
  for (const auto& contents : stage::partition_layers(spec.layers, stages, {})) {
    shapes.push_back({spec, contents, batch, {}});
  }
  stage::Policy policy;
  policy.percent = percent;
  policy.offload_dir = "/disk";
  for (auto& stage : plan_stages(shapes, {policy}, job.cluster, requests, schedule, true)) {
    job.pages = stage.memory.kv_pages_per_layer;
    job.plans.push_back(std::move(stage.plan));
  }
  return job;
}

SimulationResult run(const Job& job, const SimulationOptions& options = {}) {
  return simulate(job.plans, job.cluster, job.requests, job.pages, options);
}

Workload mixed(std::size_t count) {
  Workload requests;
  for (std::size_t i = 0; i < count; ++i) {
    requests.push_back(
        {static_cast<std::int64_t>(1 + i * 37 % 90), static_cast<std::int64_t>(1 + i * 13 % 9)});
  }
  return requests;
}

/// Nothing is ever scarce, messages take no time, and what attention costs is no more than a step.
NodeProfile ideal_node() {
  auto node = gpu_node();
  node.cores = 1000;
  node.memory_bytes_per_second = 1e18;
  node.copies.both_ways = 1e18;
  node.disk.together = 3e9;
  node.caches[device::KvType::f16] = {.device = Curve(1e18), .cpu = Curve(1e18), .store = 1e9};
  node.prompt_attention_flops = 1e24;
  node.link = node.local_link = {.latency_seconds = 0, .bytes_per_second = 1e18};
  return node;
}

/// The tests' own virtual pipeline, which goes through the visits one by one.
double walked_seconds(const Job& job, const NodeProfile& node, const stage::Percent& percent) {
  std::vector<std::int64_t> prompts;
  std::vector<std::int64_t> generated;
  for (const auto& request : job.requests) {
    prompts.push_back(request.prompt);
    generated.push_back(request.generated);
  }
  const CostModel costs(node, job.plans.front());
  const std::vector<BatchLoad> no_loads(8);
  stage::Policy policy;
  policy.percent = percent;
  policy.offload_dir = "/disk";
  return testing::run_virtual_pipeline(
             {.spec = job.plans.front().shape.spec,
              .stages = static_cast<int>(job.plans.size()),
              .shape = job.plans.front().shape.batch,
              .page_capacity = job.pages,
              .policy = policy,
              .options = options_for(node, stage::ScheduleKind::rolling, true),
              .weight_buffers = job.plans.front().weights.buffers},
             prompts, generated,
             {.work = [&](const stage::Step& step) { return costs.of(step, no_loads).seconds; }})
      .end;
}

TEST(Simulation, AgreesWithAWalkThroughTheVisits) {
  const auto node = ideal_node();
  const stage::BatchShape batch{
      .gpu_batch_size = 3, .num_gpu_batches = 2, .inner_iterations = 0, .prefill_piece = 64};
  for (const stage::Percent& percent :
       {stage::Percent{100, 0, 100, 0, 100, 0}, stage::Percent{20, 80, 100, 0, 100, 0},
        stage::Percent{0, 50, 30, 70, 100, 0}, stage::Percent{0, 50, 0, 40, 0, 100},
        stage::Percent{0, 100, 0, 100, 0, 50}}) {
    for (const int stages : {1, 2, 3}) {
      const auto job = make_job(node, stages, 1, percent, batch, mixed(40));
      EXPECT_NEAR(run(job).seconds / walked_seconds(job, node, percent), 1, 0.002)
          << stages << " stages, " << stage::format_percent(percent);
    }
  }
}

TEST(Simulation, CountsTokens) {
  const auto requests = mixed(40);
  const auto job =
      make_job(gpu_node(), 2, 1, {}, {.gpu_batch_size = 4, .inner_iterations = 0}, requests);
  const auto result = run(job);
  std::int64_t prompt = 0;
  std::int64_t generated = 0;
  for (const auto& request : requests) {
    prompt += request.prompt;
    generated += request.generated;
  }
  EXPECT_EQ(result.prompt_tokens, prompt);
  EXPECT_EQ(result.generated_tokens, generated);
  EXPECT_LT(result.prefill_seconds, result.seconds);
  EXPECT_LE(result.max_latency_seconds, result.seconds);
  EXPECT_LE(result.mean_latency_seconds, result.max_latency_seconds);
}

TEST(Simulation, OneVisitByHand) {
  auto node = ideal_node();
  node.step = {};
  node.formats[Packing::none].products = {{512, Curve(1e9)}};
  node.row_bytes_per_second = 1e18;
  node.sampled_logits_per_second = 1e18;
  node.link = node.local_link = {.latency_seconds = 0.5, .bytes_per_second = 2048};
  // One request of four tokens that gives one: four layers' products on each of two stages, four
  // rows of 512 floats on the wire, one row of head, and messages of half a second. The second
  // stage receives once it knows of the visit, which is later than the first one has computed.
  const auto job = make_job(node, 2, 1, {}, {.gpu_batch_size = 1, .inner_iterations = 0}, {{4, 1}});
  const double layer = 2.0 * 12 * 512 * 512 * 4 / 1e9;
  const double head = 2.0 * 512 * 1000 / 1e9;
  const double hidden = 4.0 * 512 * 4 / 2048 + 0.5;
  ASSERT_LT(4 * layer, 0.5);
  EXPECT_NEAR(run(job).seconds, 0.5 + hidden + 4 * layer + head + 0.5, 1e-6);
}

TEST(Simulation, TracingChangesNothingAndShowsEveryStep) {
  const auto job =
      make_job(host_node(), 2, 2, {50, 0, 50, 50, 100, 0},
               {.gpu_batch_size = 2, .num_gpu_batches = 2, .inner_iterations = 0}, mixed(12));
  const auto plain = run(job);
  const auto traced = run(job, {.trace = true});
  EXPECT_EQ(plain.seconds, traced.seconds);
  EXPECT_TRUE(plain.trace.empty());
  std::map<std::pair<std::int32_t, Resource>, double> busy;
  std::map<std::pair<std::int32_t, Resource>, double> last_end;
  for (const auto& step : traced.trace) {
    auto& end = last_end[{step.stage, step.resource}];
    EXPECT_GE(step.start_seconds, end - 1e-12);  // one at a time
    end = step.end_seconds;
    busy[{step.stage, step.resource}] += step.end_seconds - step.start_seconds;
  }
  for (std::int32_t k = 0; k < 2; ++k) {
    for (int r = 0; r < stage::kResources; ++r) {
      const auto resource = static_cast<Resource>(r);
      const auto& stage = traced.stages[static_cast<std::size_t>(k)];
      EXPECT_NEAR((busy[{k, resource}]), stage.busy_seconds[static_cast<std::size_t>(r)], 1e-9);
    }
  }
  const auto text = format_trace(traced.trace);
  EXPECT_NE(text.find(R"("name":"attend_cpu","ph":"X","pid":1)"), std::string::npos);
}

TEST(Simulation, StagesOfOneNodeShareItsDisk) {
  auto node = gpu_node();
  node.stages = 2;
  node.disk = {.read = Curve(1e8), .write = Curve(1e8), .together = 1e8};
  const stage::Percent streaming{0, 0, 100, 0, 100, 0};
  const stage::BatchShape batch{.gpu_batch_size = 1, .inner_iterations = 0};
  const Workload requests(6, {4, 8});
  // Two stages on one node share it; a node each has its own, twice as fast as a share.
  const auto together = run(make_job(node, 2, 2, streaming, batch, requests)).seconds;
  const auto apart = run(make_job(node, 2, 1, streaming, batch, requests)).seconds;
  EXPECT_NEAR(together / apart, 2, 0.1);
}

TEST(Simulation, IsDeterministic) {
  const auto job =
      make_job(host_node(), 3, 2, {20, 40, 30, 30, 50, 50},
               {.gpu_batch_size = 3, .num_gpu_batches = 2, .inner_iterations = 0}, mixed(30));
  const auto a = run(job);
  const auto b = run(job);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.stages[2].busy_seconds, b.stages[2].busy_seconds);
}

TEST(Simulation, SchedulesDifferAsTheyShould) {
  const stage::BatchShape batch{
      .gpu_batch_size = 4, .num_gpu_batches = 4, .inner_iterations = 0, .prefill_piece = 64};
  std::map<stage::ScheduleKind, double> seconds;
  for (const auto kind : {stage::ScheduleKind::rolling, stage::ScheduleKind::zigzag,
                          stage::ScheduleKind::row, stage::ScheduleKind::flexgen}) {
    seconds[kind] = run(make_job(gpu_node(), 1, 1, {0, 100, 100, 0, 100, 0}, batch,
                                 Workload(64, {16, 16}), kind))
                        .seconds;
  }
  // One load of the weights serves four GPU batches, or one.
  EXPECT_GT(seconds[stage::ScheduleKind::row], 2 * seconds[stage::ScheduleKind::zigzag]);
  EXPECT_GT(seconds[stage::ScheduleKind::flexgen], seconds[stage::ScheduleKind::zigzag]);
}

}  // namespace
}  // namespace stagecoach::plan
