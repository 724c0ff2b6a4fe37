#include "job/compression.hpp"

#include "base/error.hpp"

namespace stagecoach::job {

model::WeightFormat choose_format(const Compression& wanted, const model::WeightFormat& stored) {
  const auto packing = wanted.weights.value_or(stored.layers.packing);
  if (wanted.embeddings && packing == Packing::none) {
    throw ConfigError("--compress-embeddings: needs --compress-weights int4 or int8 beside it");
  }
  if (!stored.packed()) {
    return {.layers = {packing, wanted.group}, .embeddings = wanted.embeddings};
  }
  const PackFormat format{packing, wanted.weights ? wanted.group : stored.layers.group};
  if (format != stored.layers || (wanted.embeddings && !stored.embeddings)) {
    throw ConfigError(fmt::format(
        "--compress-weights, --compress-group, --compress-embeddings: the store's weights are "
        "packed already, as {}: leave these out, or convert the checkpoint with another --quantize",
        describe(stored)));
  }
  return stored;
}

}  // namespace stagecoach::job
