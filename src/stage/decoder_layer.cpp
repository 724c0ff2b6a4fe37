#include "stage/decoder_layer.hpp"

#include <cmath>
#include <utility>

#include "base/error.hpp"

namespace stagecoach::stage {
namespace {

std::int64_t qkv_width(const model::ModelSpec& spec) {
  return (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
}

device::Epilogue epilogue_of(model::Activation activation) {
  STAGECOACH_CHECK(activation == model::Activation::relu);
  return device::Epilogue::relu;
}

/// The operations of one layer over one set of rows, sharing device, stream and row count.
class LayerOps {
 public:
  LayerOps(device::Device& device, device::Stream& stream, const model::ModelSpec& spec,
           std::int64_t rows)
      : device_(device), stream_(stream), spec_(spec), rows_(rows) {}

  void norm(const offload::WeightAndBias& weights, const float* x, float* out) {
    device_.layer_norm(stream_, {.x = x,
                                 .weight = weights.weight,
                                 .bias = weights.bias,
                                 .out = out,
                                 .rows = rows_,
                                 .width = spec_.hidden,
                                 .epsilon = static_cast<float>(spec_.norm_epsilon)});
  }

  void linear(const offload::WeightAndBias& weights, const float* x, std::int64_t in, float* out,
              std::int64_t out_features, std::int64_t out_stride, device::Epilogue epilogue) {
    device_.linear(stream_, {.x = x,
                             .weight = weights.weight,
                             .bias = weights.bias,
                             .out = out,
                             .rows = rows_,
                             .in_features = in,
                             .out_features = out_features,
                             .out_stride = out_stride,
                             .epilogue = epilogue});
  }

 private:
  device::Device& device_;
  device::Stream& stream_;
  const model::ModelSpec& spec_;
  std::int64_t rows_;
};

}  // namespace

std::int64_t LayerWorkspace::size_floats(const model::ModelSpec& spec, std::int64_t rows) {
  return rows * (spec.hidden + qkv_width(spec) + spec.heads * spec.head_dim + spec.ffn);
}

LayerWorkspace::LayerWorkspace(const model::ModelSpec& spec, std::int64_t rows, float* memory)
    : norm(memory),
      qkv(norm + rows * spec.hidden),
      attention(qkv + rows * qkv_width(spec)),
      mlp(attention + rows * spec.heads * spec.head_dim) {}

void enqueue_layer(device::Device& device, device::Stream& stream, const model::ModelSpec& spec,
                   const offload::LayerWeights& weights, const LayerWorkspace& workspace,
                   LayerInput input) {
  using device::Epilogue;
  LayerOps ops(device, stream, spec, input.rows);
  const auto q_width = spec.heads * spec.head_dim;
  const auto kv_width = spec.kv_heads * spec.head_dim;
  const auto stride = qkv_width(spec);
  float* const query = workspace.qkv;
  float* const key = query + q_width;
  float* const value = key + kv_width;

  ops.norm(weights.attn_norm, input.hidden, workspace.norm);
  ops.linear(weights.q, workspace.norm, spec.hidden, query, q_width, stride, Epilogue::none);
  ops.linear(weights.k, workspace.norm, spec.hidden, key, kv_width, stride, Epilogue::none);
  ops.linear(weights.v, workspace.norm, spec.hidden, value, kv_width, stride, Epilogue::none);

  device::AttentionArgs attention{.query = query,
                                  .key = key,
                                  .value = value,
                                  .row_stride = stride,
                                  .out = workspace.attention,
                                  .heads = spec.heads,
                                  .kv_heads = spec.kv_heads,
                                  .head_dim = spec.head_dim,
                                  .page_tokens = input.page_tokens,
                                  .scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim)),
                                  .kv_type = input.kv_type,
                                  .sequences = std::move(input.sequences)};
  device.store_kv(stream, attention);
  device.attention(stream, std::move(attention));
  ops.linear(weights.o, workspace.attention, q_width, input.hidden, spec.hidden, spec.hidden,
             Epilogue::add_to_out);

  ops.norm(weights.mlp_norm, input.hidden, workspace.norm);
  ops.linear(weights.up, workspace.norm, spec.hidden, workspace.mlp, spec.ffn, spec.ffn,
             epilogue_of(spec.activation));
  ops.linear(weights.down, workspace.mlp, spec.ffn, input.hidden, spec.hidden, spec.hidden,
             Epilogue::add_to_out);
}

}  // namespace stagecoach::stage
