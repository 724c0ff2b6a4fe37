#pragma once

#include <cstdint>
#include <memory>

#include "job/config.hpp"
#include "model/spec.hpp"
#include "model/weight_store.hpp"
#include "offload/weight_source.hpp"

namespace stagecoach::job {

/// A model as a rank sees it: what it is, and where to read its weights.
struct ModelAccess {
  model::ModelSpec spec;
  model::WeightFormat format;       ///< of what `weights` gives
  model::TokenizerFiles tokenizer;  ///< with no vocab_json when the model has no tokenizer
  std::uint64_t digest = 0;         ///< equal on all ranks, or their weights differ
  std::shared_ptr<const offload::WeightSource> weights;
};

/// Opens the store, or describes the dummy model. ConfigError if that cannot be.
ModelAccess open_model(const JobConfig& config);

}  // namespace stagecoach::job
