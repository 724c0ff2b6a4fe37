#include "stage/partition.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace stagecoach::stage {
namespace {

std::vector<std::int64_t> even_split(std::int64_t layers, int stages) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), layers / stages);
  std::fill_n(counts.begin(), layers % stages, layers / stages + 1);
  return counts;
}

void check_counts(const std::vector<std::int64_t>& counts, std::int64_t layers, int stages) {
  if (counts.size() != static_cast<std::size_t>(stages)) {
    throw ConfigError(fmt::format("--layers-per-stage {}: {} numbers for {} stages",
                                  fmt::join(counts, ","), counts.size(), stages));
  }
  if (std::any_of(counts.begin(), counts.end(),
                  [&](std::int64_t count) { return count < 1 || count > layers; })) {
    throw ConfigError(fmt::format("--layers-per-stage {}: every stage needs 1 to {} layers",
                                  fmt::join(counts, ","), layers));
  }
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (total != layers) {
    throw ConfigError(fmt::format("--layers-per-stage {}: {} layers in all, but the model has {}",
                                  fmt::join(counts, ","), total, layers));
  }
}

}  // namespace

std::vector<offload::StageContents> partition_layers(
    std::int64_t layers, int stages, const std::vector<std::int64_t>& layers_per_stage) {
  if (stages < 1 || stages > layers) {
    throw ConfigError(fmt::format("{} stages for a model of {} layers: use 1 to {} stages", stages,
                                  layers, layers));
  }
  const auto counts = layers_per_stage.empty() ? even_split(layers, stages) : layers_per_stage;
  check_counts(counts, layers, stages);
  std::vector<offload::StageContents> contents;
  std::int64_t first = 0;
  for (const auto count : counts) {
    contents.push_back({.first_layer = first, .layers = count});
    first += count;
  }
  contents.front().embedding = true;
  contents.back().head = true;
  return contents;
}

}  // namespace stagecoach::stage
