#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/options.hpp"
#include "job/config.hpp"

namespace stagecoach::cli {

/// What `run` and `eval` have in common, in two parts: their own options stand between.
po::options_description model_options();
void add_pipeline_options(po::options_description& all);

/// Reads both parts, --overwrite and --on-error. `launched_ranks` is the number of MPI ranks that
/// run.
void read_job_options(const Options& options, int launched_ranks, job::JobConfig& config);

/// The value that an option's text stands for; ConfigError lists the texts.
template <typename T>
T one_of(const Options& options, const std::string& name,
         const std::vector<std::pair<std::string, T>>& choices) {
  std::string known;
  for (const auto& [text, value] : choices) {
    if (options.text(name) == text) {
      return value;
    }
    known += (known.empty() ? "" : ", ") + text;
  }
  throw ConfigError(fmt::format("--{} {}: must be one of {}", name, options.text(name), known));
}

}  // namespace stagecoach::cli
