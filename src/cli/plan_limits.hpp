#pragma once

#include "cli/options.hpp"
#include "plan/job_planner.hpp"

namespace stagecoach::cli {

/// --allow and --max-latency: what a plan may choose, and what it must keep.
po::options_description plan_limit_options();

/// Reads them into the request, whose `weights` are set. ConfigError if they make no sense.
void read_plan_limits(const Options& options, plan::PlanRequest& request);

}  // namespace stagecoach::cli
