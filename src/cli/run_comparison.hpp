#pragma once

#include <string>

#include "job/progress.hpp"
#include "job/whole_job.hpp"
#include "plan/simulation.hpp"

namespace stagecoach::cli {

/// A table of what was predicted of a run and what was measured: times and rates of the job, then
/// busy seconds and bytes of each resource of each stage. What one side does not know is left out.
std::string format_comparison(const job::WholeJob& whole, const job::RunTotals& measured,
                              const plan::SimulationResult& predicted);

}  // namespace stagecoach::cli
