#pragma once

#include <vector>

#include "cli/options.hpp"
#include "stage/policy.hpp"

namespace stagecoach::cli {

/// Options of where a stage keeps what: --percent, budgets, --stage-policy, --schedule and their
/// like. The same for every subcommand that has them.
po::options_description policy_options();

/// The policies of `stages` stages: one for all, or one each where --stage-policy names several.
/// ConfigError if something makes no sense.
std::vector<stage::Policy> read_policies(const Options& options, int stages);

}  // namespace stagecoach::cli
