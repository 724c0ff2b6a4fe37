#pragma once

#include <string>
#include <vector>

#include "plan/simulation.hpp"

namespace stagecoach::plan {

/// The steps in the format of chrome://tracing and Perfetto ("Trace Event Format", complete
/// events): a process a stage, a thread a resource.
std::string format_trace(const std::vector<TracedStep>& steps);

}  // namespace stagecoach::plan
