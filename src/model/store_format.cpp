#include "model/store_format.hpp"

#include <fmt/format.h>

namespace stagecoach::model {

std::string layer_group(std::int64_t layer) { return fmt::format("{}/{:03}", kLayersGroup, layer); }

std::vector<GroupTensors> store_layout(const ModelSpec& spec) {
  std::vector<GroupTensors> layout{{kEmbeddingGroup, embedding_tensors(spec)}};
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    layout.push_back({layer_group(layer), layer_tensors(spec)});
  }
  layout.push_back({kHeadGroup, head_tensors(spec)});
  return layout;
}

std::uint64_t weight_bytes(const ModelSpec& spec) {
  return static_cast<std::uint64_t>(parameter_count(spec)) * 2;
}

}  // namespace stagecoach::model
