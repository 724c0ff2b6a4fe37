#pragma once

#include "model/spec.hpp"
#include "offload/stage_contents.hpp"
#include "stage/batch_shape.hpp"

namespace stagecoach::stage {

/// What of a model and of its batches a stage has.
struct StageShape {
  model::ModelSpec spec;
  offload::StageContents contents;
  BatchShape batch;
  model::WeightFormat weights{};

  [[nodiscard]] bool first() const { return contents.embedding; }
  [[nodiscard]] bool last() const { return contents.head; }
};

}  // namespace stagecoach::stage
