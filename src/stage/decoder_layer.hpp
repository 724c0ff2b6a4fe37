#pragma once

#include <cstdint>
#include <vector>

#include "device/device.hpp"
#include "model/spec.hpp"
#include "offload/stage_weights.hpp"

namespace stagecoach::stage {

/// Where the operations of a layer put what they hand on. All [rows, ...] f32, dense.
struct LayerWorkspace {
  float* norm = nullptr;       ///< [rows, hidden]
  float* qkv = nullptr;        ///< [rows, heads + 2 * kv_heads, head_dim]
  float* attention = nullptr;  ///< [rows, heads * head_dim]
  float* mlp = nullptr;        ///< [rows, ffn]

  /// Floats that a workspace for `rows` rows takes.
  static std::int64_t size_floats(const model::ModelSpec& spec, std::int64_t rows);
  LayerWorkspace(const model::ModelSpec& spec, std::int64_t rows, float* memory);
};

/// The rows of one GPU batch in one layer.
struct LayerInput {
  float* hidden = nullptr;  ///< [rows, spec.hidden], updated in place
  std::int64_t rows = 0;
  std::int64_t page_tokens = 0;
  device::KvType kv_type = device::KvType::f16;
  std::vector<device::SequenceRows> sequences;  ///< with this layer's pages
};

/// Enqueues one decoder layer (pre-norm): attention over the KV pages, then the MLP, each added to
/// the hidden states. The place to teach another model family's layer.
void enqueue_layer(device::Device& device, device::Stream& stream, const model::ModelSpec& spec,
                   const offload::LayerWeights& weights, const LayerWorkspace& workspace,
                   LayerInput input);

}  // namespace stagecoach::stage
