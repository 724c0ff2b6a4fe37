#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "gpu/cases.hpp"

namespace stagecoach::bench::gpu {
namespace {

struct LayerShape {
  std::string name;
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t ffn;
};

/// One decoder layer as the engine runs it (stage/decoder_layer.cpp): its weights, and room for
/// `rows` rows.
class Layer {
 public:
  Layer(Workbench& bench, const LayerShape& shape, std::int64_t rows, const PackFormat& format)
      : device_(bench.device()),
        stream_(bench.stream()),
        rows_(rows),
        hidden_(shape.hidden),
        ffn_(shape.ffn),
        format_(format),
        weights_(bench.packed_bytes(static_cast<std::int64_t>(weight_bytes()))),
        vector_(bench.halves(std::max(shape.hidden, shape.ffn))),
        x_(bench.floats(rows * hidden_)),
        norm_(bench.floats(rows * hidden_)),
        qkv_(bench.floats(rows * 3 * hidden_)),
        attention_(bench.floats(rows * hidden_)),
        mlp_(bench.floats(rows * ffn_)) {}

  [[nodiscard]] double weight_bytes() const {
    return 4 * gpu::weight_bytes(format_, hidden_, hidden_) +
           gpu::weight_bytes(format_, ffn_, hidden_) + gpu::weight_bytes(format_, hidden_, ffn_);
  }
  /// The matrix products.
  [[nodiscard]] std::vector<Gemm> gemms() const {
    const Gemm square{rows_, hidden_, hidden_};
    return {square, square, square, square, {rows_, ffn_, hidden_}, {rows_, hidden_, ffn_}};
  }
  [[nodiscard]] const Half* weights() const { return reinterpret_cast<const Half*>(weights_); }
  [[nodiscard]] float* qkv() const { return qkv_; }
  [[nodiscard]] float* attention_out() const { return attention_; }

  void enqueue(const device::AttentionArgs& attention) const {
    using device::Epilogue;
    const auto row = [&](std::int64_t columns) {
      return static_cast<std::int64_t>(gpu::weight_bytes(format_, 1, columns));
    };
    const std::byte* matrix = weights_;
    const auto square = hidden_ * row(hidden_);
    norm();
    for (int i = 0; i < 3; ++i, matrix += square) {
      linear(norm_, hidden_, matrix, qkv_ + i * hidden_, hidden_, 3 * hidden_, Epilogue::none);
    }
    device_.store_kv(stream_, attention);
    device_.attention(stream_, attention);
    linear(attention_, hidden_, matrix, x_, hidden_, hidden_, Epilogue::add_to_out);
    matrix += square;
    norm();
    linear(norm_, hidden_, matrix, mlp_, ffn_, ffn_, Epilogue::relu);
    matrix += ffn_ * row(hidden_);
    linear(mlp_, ffn_, matrix, x_, hidden_, hidden_, Epilogue::add_to_out);
  }

 private:
  void norm() const {
    device_.layer_norm(stream_, {.x = x_,
                                 .weight = vector_,
                                 .bias = vector_,
                                 .out = norm_,
                                 .rows = rows_,
                                 .width = hidden_});
  }
  void linear(const float* x, std::int64_t in, const std::byte* matrix, float* out,
              std::int64_t out_features, std::int64_t out_stride, device::Epilogue epilogue) const {
    device_.linear(stream_, {.x = x,
                             .weight = {matrix, format_},
                             .bias = vector_,
                             .out = out,
                             .rows = rows_,
                             .in_features = in,
                             .out_features = out_features,
                             .out_stride = out_stride,
                             .epilogue = epilogue});
  }

  device::Device& device_;
  device::Stream& stream_;
  std::int64_t rows_;
  std::int64_t hidden_;
  std::int64_t ffn_;
  PackFormat format_;
  std::byte* weights_;
  Half* vector_;
  float* x_;
  float* norm_;
  float* qkv_;
  float* attention_;
  float* mlp_;
};

/// Weights and cache are read once; what lies between is small beside them.
void decode(Workbench& bench, const LayerShape& shape, std::int64_t sequences,
            const PackFormat& format, const device::KvFormat& kv_format, const char* what) {
  const auto tokens = bench.sizes().contexts[bench.sizes().contexts.size() / 2];
  const Layer layer(bench, shape, sequences, format);
  const Cache cache(bench, kv_format, shape.heads, sequences, tokens);
  const auto args = cache.args(layer.qkv(), layer.attention_out(), 1);
  const double bytes = layer.weight_bytes() + cache.bytes();
  bench.compare("layers", fmt::format("{} decode {} x {} {}", shape.name, sequences, tokens, what),
                "GB/s", bench.work(bytes, [&] { layer.enqueue(args); }), "copy", bench.copy(bytes),
                0);
  bench.forget();
}

/// All arithmetic of the layer, against cuBLAS's rate on its matrix products alone.
void prefill(Workbench& bench, const LayerShape& shape) {
  const auto sequences = bench.sizes().prefill_sequences;
  const auto rows = bench.sizes().prefill_rows;
  const Layer layer(bench, shape, sequences * rows, {});
  const Cache cache(bench, {}, shape.heads, sequences, rows);
  const auto args = cache.args(layer.qkv(), layer.attention_out(), rows);
  const auto yardstick = bench.gemms(layer.gemms(), layer.weights());
  const double flops = yardstick.amount + 2.0 * static_cast<double>(sequences * rows) *
                                              static_cast<double>((rows + 1) * shape.hidden);
  bench.compare("layers", fmt::format("{} prefill {} x {}", shape.name, sequences, rows), "TFLOP/s",
                bench.work(flops, [&] { layer.enqueue(args); }), "cuBLAS alone", yardstick, kAim);
  bench.forget();
}

}  // namespace

void measure_layers(Workbench& bench) {
  const auto& sizes = bench.sizes();
  // Of configs/models.
  std::vector<LayerShape> shapes{{"OPT-6.7B", 4096, 32, 16384}, {"OPT-30B", 7168, 56, 28672}};
  if (bench.settings().small) {
    shapes = {{"small", sizes.heads * sizes.head_dim, sizes.heads, 512}};
  }
  const PackFormat int4{Packing::int4, 64};
  for (const auto& shape : shapes) {
    decode(bench, shape, sizes.sequences, {}, {}, "f16");
    decode(bench, shape, std::min<std::int64_t>(sizes.sequences, 8), int4,
           {device::KvType::int4, 64}, "int4");
    prefill(bench, shape);
  }
}

}  // namespace stagecoach::bench::gpu
