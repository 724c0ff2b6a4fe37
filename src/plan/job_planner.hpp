#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/cluster.hpp"
#include "plan/simulation.hpp"
#include "stage/memory_report.hpp"

namespace stagecoach::plan {

/// What is to be planned.
struct PlanRequest {
  model::ModelSpec spec;
  model::WeightFormat weights{};  ///< of the store
  Cluster cluster;                ///< decides the number of stages
  Workload requests;
  /// Beside the store's weights and an f16 cache these may be chosen.
  std::vector<model::WeightFormat> allowed_weights;
  std::vector<device::KvFormat> allowed_caches;
  /// Weights that the store has otherwise are packed while they are read: none of them on disk.
  bool packed_while_loaded = false;
  stage::ScheduleKind schedule = stage::ScheduleKind::rolling;
  /// Budgets and folder of each stage (or one for all); its percent does not matter.
  std::vector<stage::Policy> budgets;
  double max_latency_seconds = 0;  ///< of a request; 0: any
  /// Steps that the search may simulate before it settles for what it has found.
  std::int64_t most_steps = 150'000'000;
};

/// Everything that a job needs to be told, and what the simulator says about it.
struct JobPlan {
  model::WeightFormat weights{};
  stage::BatchShape batch;
  stage::ScheduleKind schedule = stage::ScheduleKind::rolling;
  std::vector<std::int64_t> layers_per_stage{};
  std::vector<stage::Policy> policies{};  ///< one a stage
  std::vector<stage::PlannedStage> stages{};
  SimulationResult simulated{};  ///< of the whole workload, or of the part of it that says the rest
  double seconds = 0;            ///< of the whole workload
  double tokens_per_second = 0;
  double decode_tokens_per_second = 0;
  double max_latency_seconds = 0;
  double joules = 0;  ///< 0: no watts are known
};

struct PlanResult {
  std::vector<JobPlan> best;      ///< by tokens a second, the best first; at least one
  std::vector<JobPlan> frontier;  ///< by latency: none is both slower and later than another
  std::int64_t shapes_tried = 0;
  std::int64_t programs_solved = 0;
};

/// Searches batch shapes, formats, partitions and placements: one linear program a stage for each,
/// the best few scored by the simulator. Deterministic. OutOfMemory if nothing fits, with what is
/// missing and by how much; ConfigError if nothing meets max_latency_seconds.
PlanResult plan_job(const PlanRequest& request);

/// Scores one given plan by the simulator: what `simulate` and the planner itself use. Jobs of many
/// rounds of requests are simulated in part, and the rest goes on as the last round did.
JobPlan score(const PlanRequest& request, const JobPlan& plan,
              const SimulationOptions& options = {});

}  // namespace stagecoach::plan
