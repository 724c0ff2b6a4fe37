#include <algorithm>
#include <cmath>
#include <set>

#include "plan/batch_choice.hpp"
#include "plan/job_planner.hpp"
#include "plan/stage_estimate.hpp"
#include "stage/partition.hpp"

namespace stagecoach::plan {
namespace {

/// Rounds of requests through all places after which each takes as long as the one before; and for
/// a rough look.
constexpr std::int64_t kWarmRounds = 2;
constexpr std::int64_t kRoughlyWarmRounds = 1;

std::int64_t generated_tokens(const Workload& requests, std::size_t count) {
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < count; ++i) {
    tokens += requests[i].generated;
  }
  return tokens;
}

/// Sequences that are alive at once: as many as have a place, and pages.
std::int64_t alive_at_once(const PlanRequest& request, const JobPlan& plan) {
  const auto wanted = demand_for(request.requests, plan.batch).wanted_pages;
  const auto pages = plan.stages.front().memory.kv_pages_per_layer;
  const auto places = plan.batch.places();
  const auto with_pages = static_cast<double>(places) * static_cast<double>(pages) /
                          static_cast<double>(std::max<std::int64_t>(wanted, 1));
  return std::clamp<std::int64_t>(std::llround(with_pages), 1, places);
}

double watts_of(const Cluster& cluster) {
  const std::set<std::size_t> used(cluster.node_of_stage.begin(), cluster.node_of_stage.end());
  double watts = 0;
  for (const auto node : used) {
    if (cluster.nodes[node].watts <= 0) {
      return 0;
    }
    watts += cluster.nodes[node].watts;
  }
  return watts;
}

/// Simulates some rounds; where there are more, the rest goes on as the last one did. Returns how
/// many requests were simulated.
std::size_t simulate_job(JobPlan& plan, const PlanRequest& request,
                         const SimulationOptions& options) {
  std::vector<stage::StagePlan> plans;
  for (const auto& one : plan.stages) {
    plans.push_back(one.plan);
  }
  const auto pages = plan.stages.front().memory.kv_pages_per_layer;
  const auto run = [&](std::size_t count) {
    const Workload part(request.requests.begin(),
                        request.requests.begin() + static_cast<std::ptrdiff_t>(count));
    return simulate(plans, request.cluster, part, pages, options);
  };
  const auto all = request.requests.size();
  const auto round = static_cast<std::size_t>(alive_at_once(request, plan));
  const auto warm =
      static_cast<std::size_t>(options.most_layers > 0 ? kRoughlyWarmRounds : kWarmRounds) * round;
  if (all <= warm + round) {
    plan.simulated = run(all);
    plan.seconds = plan.simulated.seconds;
    return all;
  }
  const auto before = run(warm);
  plan.simulated = run(warm + round);
  const auto tokens = [&](std::size_t count) {
    return static_cast<double>(generated_tokens(request.requests, count));
  };
  const auto pace =
      (plan.simulated.seconds - before.seconds) / (tokens(warm + round) - tokens(warm));
  plan.seconds = plan.simulated.seconds + pace * (tokens(all) - tokens(warm + round));
  return warm + round;
}

}  // namespace

JobPlan score(const PlanRequest& request, const JobPlan& given, const SimulationOptions& options) {
  auto plan = given;
  const auto parts = stage::partition_layers(
      request.spec.layers, static_cast<int>(request.cluster.stages()), plan.layers_per_stage);
  std::vector<stage::StageShape> shapes;
  plan.layers_per_stage.clear();
  for (const auto& part : parts) {
    plan.layers_per_stage.push_back(part.layers);
    shapes.push_back(
        {.spec = request.spec, .contents = part, .batch = plan.batch, .weights = plan.weights});
  }
  plan.stages =
      plan_stages(shapes, plan.policies, request.cluster, request.requests, plan.schedule, true);
  const auto simulated = simulate_job(plan, request, options);
  const auto tokens =
      static_cast<double>(generated_tokens(request.requests, request.requests.size()));
  plan.tokens_per_second = tokens / plan.seconds;
  const auto generated = generated_tokens(request.requests, simulated);
  plan.decode_tokens_per_second =
      generated > static_cast<std::int64_t>(simulated)
          ? plan.simulated.decode_tokens_per_second(static_cast<std::int64_t>(simulated))
          : 0;
  plan.max_latency_seconds = plan.simulated.max_latency_seconds;
  plan.joules = watts_of(request.cluster) * plan.seconds;
  return plan;
}

}  // namespace stagecoach::plan
