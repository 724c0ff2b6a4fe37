#pragma once

#include <string>
#include <vector>

#include "cli/options.hpp"
#include "job/model_access.hpp"
#include "plan/cluster.hpp"

namespace stagecoach::cli {

/// --model and --spec, --profile, the number of stages, and what is asked of them: what planning
/// and simulating begin with.
po::options_description plan_input_options();

/// A model that need not be here.
struct ModelShape {
  model::ModelSpec spec;
  model::WeightFormat stored;  ///< of the store's weights; f16 without a store
};
/// By --model or --spec. ConfigError names the command if neither is given, or both.
ModelShape read_model_shape(const Options& options, const std::string& command);

/// Node profiles from files with commas between; ConfigError names `flag`.
std::vector<plan::NodeProfile> read_profiles(const std::string& paths, const std::string& flag);

/// By --profile, --stages and --stages-per-node.
plan::Cluster read_cluster(const Options& options, const std::string& command);

/// By --prompts, with the store's tokenizer, or by --requests, --prompt-len and --gen-len.
plan::Workload read_lengths(const Options& options, const ModelShape& model);

}  // namespace stagecoach::cli
