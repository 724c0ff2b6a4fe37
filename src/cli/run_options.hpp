#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/run_planning.hpp"
#include "job/config.hpp"

namespace stagecoach::cli {

/// What `run` was asked for: a job, and that it be planned or compared with a prediction.
struct RunRequest {
  job::JobConfig config;
  PlanningWish planning;
};
/// Nothing after --help. `config` is checked; with --plan auto what it has of batches and policies
/// is for the planner to say.
std::optional<RunRequest> read_run_request(const std::vector<std::string>& arguments,
                                           int launched_ranks);

/// The configuration of `run` from its arguments and, with --config, an ini file; checked. Nothing
/// after --help, which it prints. `launched_ranks` is the number of MPI ranks that run.
std::optional<job::JobConfig> read_run_options(const std::vector<std::string>& arguments,
                                               int launched_ranks);

}  // namespace stagecoach::cli
