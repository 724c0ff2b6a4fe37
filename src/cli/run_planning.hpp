#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "cli/options.hpp"
#include "job/config.hpp"
#include "job/run_report.hpp"
#include "plan/job_planner.hpp"

namespace stagecoach::cli {

/// That a run be planned first, or compared afterwards with what a profile predicts.
struct PlanningWish {
  bool plan = false;
  std::vector<plan::NodeProfile> profiles;  ///< none: neither
  plan::PlanRequest limits;                 ///< with `plan`: weights as stored, and what is allowed
};

/// --plan, --profile, --allow, --max-latency.
po::options_description planning_options();

/// Reads them, profiles included. ConfigError for options that a plan decides and that were given
/// beside --plan auto.
PlanningWish read_planning(const Options& options, const job::JobConfig& config);

/// One run with its wish, on the rank that reads the options.
class RunPlanning {
 public:
  RunPlanning() = default;
  explicit RunPlanning(PlanningWish wish) : wish_(std::move(wish)) {}

  /// Plans if that is wished, and puts the plan into the configuration. ConfigError if the job
  /// computes on other devices than the profiles have, OutOfMemory if it does not fit them.
  void prepare(job::JobConfig& config, int stages_a_node, const Log& log);
  /// Predicted and measured, side by side, to the log; nothing without a profile.
  void compare(const job::RunReport& report, const Log& log) const;

 private:
  void plan(job::JobConfig& config, const Log& log) const;

  PlanningWish wish_;
  std::optional<plan::Cluster> cluster_;
};

}  // namespace stagecoach::cli
