#pragma once

#include <optional>
#include <string>
#include <vector>

#include "job/config.hpp"

namespace stagecoach::cli {

/// The configuration of `eval` from its arguments and, with --config, an ini file; checked. Nothing
/// after --help, which it prints. `launched_ranks` is the number of MPI ranks that run.
std::optional<job::JobConfig> read_eval_options(const std::vector<std::string>& arguments,
                                                int launched_ranks);

}  // namespace stagecoach::cli
