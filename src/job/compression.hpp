#pragma once

#include <cstdint>
#include <optional>

#include "base/packing.hpp"
#include "model/spec.hpp"

namespace stagecoach::job {

/// What a job asks of its weights.
struct Compression {
  std::optional<Packing> weights;  ///< none: as the store has them
  std::int64_t group = 64;
  bool embeddings = false;
};

/// How the weights are packed when they come from a store (or a generator) that has them in
/// `stored`. ConfigError if the store's are packed otherwise: packing twice would lose more.
model::WeightFormat choose_format(const Compression& wanted, const model::WeightFormat& stored);

}  // namespace stagecoach::job
