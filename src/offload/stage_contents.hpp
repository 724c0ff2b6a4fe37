#pragma once

#include <cstdint>

namespace stagecoach::offload {

/// What a stage holds of a model.
struct StageContents {
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  bool embedding = false;  ///< token and position tables
  bool head = false;       ///< final norm and head matrix (the token table when tied)
};

}  // namespace stagecoach::offload
