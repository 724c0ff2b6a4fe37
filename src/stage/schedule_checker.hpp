#pragma once

#include <string>
#include <vector>

#include "stage/step.hpp"

namespace stagecoach::stage {

/// Proves that every two steps that touch one buffer, at least one of them writing, are ordered by
/// the steps' waits and the order within each resource. Knows nothing of how the waits were found.
/// Returns one line a fault, empty when there is none: an unordered pair, or a wait for a step that
/// does not come earlier.
std::vector<std::string> check_schedule(const std::vector<Step>& steps);

}  // namespace stagecoach::stage
