#include "stage/decoder_layer.hpp"

#include <cmath>

#include "base/error.hpp"

namespace stagecoach::stage {
namespace {

using device::Epilogue;

Epilogue epilogue_of(model::Activation activation) {
  STAGECOACH_CHECK(activation == model::Activation::relu);
  return Epilogue::relu;
}

}  // namespace

std::int64_t qkv_width(const model::ModelSpec& spec) {
  return (spec.heads + 2 * spec.kv_heads) * spec.head_dim;
}

std::int64_t LayerWorkspace::size_floats(const model::ModelSpec& spec, std::int64_t rows) {
  return rows * (spec.hidden + qkv_width(spec) + spec.heads * spec.head_dim + spec.ffn);
}

LayerWorkspace::LayerWorkspace(const model::ModelSpec& spec, std::int64_t rows, float* memory)
    : norm(memory),
      qkv(norm + rows * spec.hidden),
      attention(qkv + rows * qkv_width(spec)),
      mlp(attention + rows * spec.heads * spec.head_dim) {}

DecoderLayer::DecoderLayer(device::Device& device, device::Stream& stream,
                           const model::ModelSpec& spec, const offload::LayerWeights& weights,
                           const LayerWorkspace& workspace, float* hidden, std::int64_t rows)
    : device_(device),
      stream_(stream),
      spec_(spec),
      weights_(weights),
      workspace_(workspace),
      hidden_(hidden),
      rows_(rows) {}

void DecoderLayer::norm(const offload::NormWeights& weights, const float* x, float* out) {
  device_.layer_norm(stream_, {.x = x,
                               .weight = weights.weight,
                               .bias = weights.bias,
                               .out = out,
                               .rows = rows_,
                               .width = spec_.hidden,
                               .epsilon = static_cast<float>(spec_.norm_epsilon)});
}

void DecoderLayer::linear(const offload::LinearWeights& weights, const float* x, std::int64_t in,
                          float* out, std::int64_t out_stride, Epilogue epilogue) {
  const auto rows_of_weights = [&](const device::Weights& rows, std::int64_t first,
                                   std::int64_t count) {
    if (count > 0) {
      device_.linear(stream_, {.x = x,
                               .weight = rows,
                               .bias = weights.bias + first,
                               .out = out + first,
                               .rows = rows_,
                               .in_features = in,
                               .out_features = count,
                               .out_stride = out_stride,
                               .epilogue = epilogue});
    }
  };
  rows_of_weights(weights.first, 0, weights.first_rows);
  rows_of_weights(weights.rest, weights.first_rows, weights.rest_rows);
}

void DecoderLayer::attention_in() {
  const auto q_width = spec_.heads * spec_.head_dim;
  const auto kv_width = spec_.kv_heads * spec_.head_dim;
  const auto stride = qkv_width(spec_);
  float* const query = workspace_.qkv;
  norm(weights_.attn_norm, hidden_, workspace_.norm);
  linear(weights_.q, workspace_.norm, spec_.hidden, query, stride, Epilogue::none);
  linear(weights_.k, workspace_.norm, spec_.hidden, query + q_width, stride, Epilogue::none);
  linear(weights_.v, workspace_.norm, spec_.hidden, query + q_width + kv_width, stride,
         Epilogue::none);
}

void DecoderLayer::attention_out() {
  linear(weights_.o, workspace_.attention, spec_.heads * spec_.head_dim, hidden_, spec_.hidden,
         Epilogue::add_to_out);
}

void DecoderLayer::mlp() {
  norm(weights_.mlp_norm, hidden_, workspace_.norm);
  linear(weights_.up, workspace_.norm, spec_.hidden, workspace_.mlp, spec_.ffn,
         epilogue_of(spec_.activation));
  linear(weights_.down, workspace_.mlp, spec_.ffn, hidden_, spec_.hidden, Epilogue::add_to_out);
}

device::AttentionArgs attention_args(const model::ModelSpec& spec, float* qkv, float* out,
                                     std::int64_t page_tokens, const device::KvFormat& kv_format) {
  const auto q_width = spec.heads * spec.head_dim;
  return {.query = qkv,
          .key = qkv + q_width,
          .value = qkv + q_width + spec.kv_heads * spec.head_dim,
          .row_stride = qkv_width(spec),
          .out = out,
          .heads = spec.heads,
          .kv_heads = spec.kv_heads,
          .head_dim = spec.head_dim,
          .page_tokens = page_tokens,
          .scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim)),
          .kv_format = kv_format,
          .sequences = {}};
}

}  // namespace stagecoach::stage
