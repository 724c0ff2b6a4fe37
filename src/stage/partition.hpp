#pragma once

#include <cstdint>
#include <vector>

#include "offload/stage_contents.hpp"

namespace stagecoach::stage {

/// Cuts `layers` into one contiguous run a stage: as even as can be, earlier stages taking the
/// rest, or as `layers_per_stage` says. ConfigError if the numbers do not add up or a stage gets
/// nothing. The first stage embeds, the last has the head.
std::vector<offload::StageContents> partition_layers(
    std::int64_t layers, int stages, const std::vector<std::int64_t>& layers_per_stage);

}  // namespace stagecoach::stage
