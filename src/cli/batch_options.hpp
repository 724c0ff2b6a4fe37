#pragma once

#include "cli/options.hpp"
#include "stage/batch_shape.hpp"

namespace stagecoach::cli {

/// Options of how sequences are grouped, the same for every subcommand that has them.
po::options_description batch_options();

/// ConfigError if a number makes no sense. Without --inner-iterations it is 0.
stage::BatchShape read_batch_shape(const Options& options);

}  // namespace stagecoach::cli
