#pragma once

#include <cstdint>
#include <vector>

#include "device/device.hpp"
#include "model/spec.hpp"
#include "offload/stage_weights.hpp"

namespace stagecoach::stage {

/// Numbers of a row's query, key and value together.
std::int64_t qkv_width(const model::ModelSpec& spec);

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

/// One decoder layer (pre-norm) over the rows of one GPU batch, in the parts that the schedule
/// knows. The place to teach another model family's layer. Holds references only.
class DecoderLayer {
 public:
  /// `hidden` [rows, spec.hidden] f32 is updated in place.
  DecoderLayer(device::Device& device, device::Stream& stream, const model::ModelSpec& spec,
               const offload::LayerWeights& weights, const LayerWorkspace& workspace, float* hidden,
               std::int64_t rows);

  /// Norm, query, key and value: hidden -> workspace.qkv.
  void attention_in();
  /// The products after attention, added to hidden: workspace.attention -> hidden.
  void attention_out();
  /// The MLP, added to hidden.
  void mlp();

 private:
  void norm(const offload::NormWeights& weights, const float* x, float* out);
  void linear(const offload::LinearWeights& weights, const float* x, std::int64_t in, float* out,
              std::int64_t out_stride, device::Epilogue epilogue);

  device::Device& device_;
  device::Stream& stream_;
  const model::ModelSpec& spec_;
  const offload::LayerWeights& weights_;
  const LayerWorkspace& workspace_;
  float* hidden_;
  std::int64_t rows_;
};

/// Attention's arguments but for the sequences: `qkv` is laid out as in the workspace.
device::AttentionArgs attention_args(const model::ModelSpec& spec, float* qkv, float* out,
                                     std::int64_t page_tokens, const device::KvFormat& kv_format);

}  // namespace stagecoach::stage
