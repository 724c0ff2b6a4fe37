#pragma once

#include <string>
#include <vector>

#include "job/config.hpp"
#include "plan/job_planner.hpp"

namespace stagecoach::cli {

/// The policies of a plan with all that was decided about its stages: budgets and weight buffers
/// included.
std::vector<stage::Policy> settled_policies(const plan::JobPlan& plan);

/// What a plan decides, in a job's configuration: batches, formats, schedule, layers, policies.
/// `stored`: how the store has the weights.
void apply_plan(const plan::JobPlan& plan, const model::WeightFormat& stored,
                job::JobConfig& config);

/// The ini file for --config that has a plan's whole job but model, requests and output (see
/// docs/formats.md), with the prediction as comments. Values are exact: reading it gives what
/// apply_plan gives.
std::string format_job_file(const plan::JobPlan& plan, const model::WeightFormat& stored);

}  // namespace stagecoach::cli
