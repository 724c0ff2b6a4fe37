#include "model/store_format.hpp"

#include <fmt/format.h>

namespace stagecoach::model {

std::string layer_group(std::int64_t layer) { return fmt::format("{}/{:03}", kLayersGroup, layer); }

std::vector<GroupTensors> store_layout(const ModelSpec& spec, const WeightFormat& weights) {
  std::vector<GroupTensors> layout{{kEmbeddingGroup, embedding_tensors(spec, weights)}};
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    layout.push_back({layer_group(layer), layer_tensors(spec, weights)});
  }
  layout.push_back({kHeadGroup, head_tensors(spec, weights)});
  return layout;
}

std::vector<std::int64_t> dataset_shape(const TensorSpec& tensor) {
  return tensor.format.packed() ? std::vector{tensor.rows(), tensor.row_bytes()} : tensor.shape;
}

}  // namespace stagecoach::model
