#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/job_planner.hpp"
#include "plan/linearize.hpp"

namespace stagecoach::plan {

/// What is the same on all stages, and what a linear program takes as given.
struct BatchChoice {
  model::WeightFormat weights{};
  stage::BatchShape batch;
  bool cpu_attention = false;
  friend bool operator==(const BatchChoice& a, const BatchChoice& b);
};

/// What the average request of a workload asks.
struct MeanRequest {
  double prompt = 1;
  double generated = 1;
  std::int64_t requests = 1;
};
MeanRequest mean_of(const Workload& requests);

/// How a job's visits go while it runs evenly.
struct SteadyJob {
  std::vector<SteadyVisit> visits;
  double visits_a_block = 1;  ///< of the whole job
  double visits_a_request = 1;
};
SteadyJob steady_job(const stage::BatchShape& batch, const MeanRequest& mean, std::size_t stages);

/// Choices from which the search begins: blocks from as many sequences as there are down to one.
std::vector<BatchChoice> first_choices(const PlanRequest& request);
/// Those that differ in one thing.
std::vector<BatchChoice> neighbours(const PlanRequest& request, const BatchChoice& choice);
/// What takes the least memory.
BatchChoice least_choice(const PlanRequest& request);

}  // namespace stagecoach::plan
