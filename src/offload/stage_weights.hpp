#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "model/spec.hpp"
#include "offload/weight_source.hpp"

namespace stagecoach::offload {

/// Weight and bias of one linear map or norm, on the device.
struct WeightAndBias {
  const Half* weight = nullptr;
  const Half* bias = nullptr;
};

struct LayerWeights {
  WeightAndBias attn_norm, q, k, v, o, mlp_norm, up, down;
};

/// What a stage holds of a model.
struct StageContents {
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  bool embedding = false;  ///< token and position tables
  bool head = false;       ///< final norm and head matrix (the token table when tied)
};

/// The weights of one stage, all resident in one device buffer, each tensor page-aligned.
class StageWeights {
 public:
  /// Bytes that a stage's weights take on the device.
  static std::size_t size_bytes(const model::ModelSpec& spec, const StageContents& contents);
  /// Host bytes that `load` takes while it runs.
  static std::size_t staging_bytes(int reader_threads);

  /// Reads the stage's tensors and no others, in pieces, with `reader_threads` threads at once.
  /// `progress(done_bytes, total_bytes)` is called from one thread at a time and may be empty.
  StageWeights(const model::ModelSpec& spec, const StageContents& contents,
               const WeightSource& source, device::Device& device, int reader_threads,
               const std::function<void(std::uint64_t, std::uint64_t)>& progress);

  [[nodiscard]] const LayerWeights& layer(std::int64_t index) const {
    return layers_.at(static_cast<std::size_t>(index));
  }
  [[nodiscard]] const Half* token_table() const noexcept { return token_table_; }
  [[nodiscard]] const Half* position_table() const noexcept { return position_table_; }
  [[nodiscard]] const WeightAndBias& final_norm() const noexcept { return final_norm_; }
  [[nodiscard]] const Half* head() const noexcept { return head_; }

 private:
  device::Buffer buffer_;
  std::vector<LayerWeights> layers_;
  const Half* token_table_ = nullptr;
  const Half* position_table_ = nullptr;
  WeightAndBias final_norm_;
  const Half* head_ = nullptr;
};

}  // namespace stagecoach::offload
