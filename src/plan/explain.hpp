#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plan/job_planner.hpp"

namespace stagecoach::plan {

/// The resource that is busy most of the time.
struct Bottleneck {
  std::size_t stage = 0;
  stage::Resource resource{};
  double share = 0;  ///< of the job's time
};
/// Of one stage, and of all stages.
Bottleneck bottleneck_of(const SimulationResult& simulated, std::size_t stage);
Bottleneck bottleneck_of(const SimulationResult& simulated);

/// A few lines: stages, batch shape, formats, what is predicted, the bottleneck.
std::string summarize(const JobPlan& plan);
/// Tables for people: each stage's placement, bytes of each tier against its budget, each
/// resource's time with the bottleneck named, and the prediction.
std::string explain(const JobPlan& plan, const Cluster& cluster);
/// One line a plan: what differs between them and what they reach.
std::string format_alternatives(const PlanResult& result);
/// Latency and throughput of the frontier, as a table and as a plot of characters.
std::string format_frontier(const PlanResult& result);

/// What a change would bring, each found by planning again: twice the DRAM, a disk twice as fast,
/// int4 weights and cache where they are not allowed, one more stage.
struct Improvement {
  std::string what;
  double tokens_per_second = 0;
};
std::vector<Improvement> improvements(const PlanRequest& request, const JobPlan& plan);
/// The largest gain first, each against `plan`, which would still do where the search found less.
std::string format_improvements(std::vector<Improvement> found, const JobPlan& plan);

}  // namespace stagecoach::plan
