#include "model/spec.hpp"

#include "base/error.hpp"
#include "model/spec_names.hpp"

namespace stagecoach::model {
namespace {

constexpr std::int64_t kMaxLayers = 10'000;
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;
constexpr std::int64_t kMaxFfn = std::int64_t{1} << 22;
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 26;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 26;
constexpr std::int64_t kMaxPositionOffset = 1024;

// The products of these limits stay below 2^62, so that no size of a valid model overflows.
void check_range(const char* field, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) {
    throw ConfigError(
        fmt::format("model: {} is {}, it must be from {} to {}", field, value, least, most));
  }
}

void check_runnable(bool runnable, const char* what) {
  if (!runnable) {
    throw ConfigError(fmt::format("model: {} not supported yet", what));
  }
}

void check_sizes(const ModelSpec& spec) {
  check_range("layers", spec.layers, 1, kMaxLayers);
  check_range("hidden", spec.hidden, 1, kMaxWidth);
  check_range("heads", spec.heads, 1, spec.hidden);
  check_range("kv_heads", spec.kv_heads, 1, spec.heads);
  check_range("head_dim", spec.head_dim, 1, spec.hidden);
  check_range("ffn", spec.ffn, 1, kMaxFfn);
  check_range("vocab", spec.vocab, 1, kMaxVocab);
  check_range("max_positions", spec.max_positions, 1, kMaxPositions);
  check_range("position_offset", spec.position_offset, 0, kMaxPositionOffset);
  check_range("bos_token", spec.bos_token, 0, spec.vocab - 1);
  check_range("eos_token", spec.eos_token, 0, spec.vocab - 1);
  check_range("pad_token", spec.pad_token, 0, spec.vocab - 1);
  if (spec.heads * spec.head_dim != spec.hidden) {
    throw ConfigError(fmt::format("model: heads {} times head_dim {} must be hidden {}", spec.heads,
                                  spec.head_dim, spec.hidden));
  }
  if (!(spec.norm_epsilon > 0 && spec.norm_epsilon < 1)) {
    throw ConfigError(
        fmt::format("model: norm_epsilon is {}, it must be between 0 and 1", spec.norm_epsilon));
  }
}

void add_linear(std::vector<TensorSpec>& tensors, const std::string& name, std::int64_t out,
                std::int64_t in, const PackFormat& format) {
  tensors.push_back({name + ".weight", {out, in}, format});
  tensors.push_back({name + ".bias", {out}, {}});
}

void add_norm(std::vector<TensorSpec>& tensors, const std::string& name, std::int64_t width) {
  tensors.push_back({name + ".weight", {width}, {}});
  tensors.push_back({name + ".bias", {width}, {}});
}

std::int64_t total_bytes(const std::vector<TensorSpec>& tensors) {
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors) {
    bytes += tensor.size_bytes();
  }
  return bytes;
}

}  // namespace

void ModelSpec::validate() const {
  if (family != "opt") {
    throw ConfigError(
        fmt::format("model: family {} is not supported yet, only opt is", family.substr(0, 40)));
  }
  check_sizes(*this);
  check_runnable(kv_heads == heads, "grouped queries (kv_heads < heads) are");
  check_runnable(activation == Activation::relu, "activations other than relu are");
  check_runnable(norm == NormKind::layer_norm, "norm = rms_norm is");
  check_runnable(position == PositionKind::learned, "position = rotary is");
  check_runnable(!gated_mlp, "gated_mlp = true is");
}

void validate_spec(const ModelSpec& spec, const std::string& where) {
  try {
    spec.validate();
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", where, error.what()));
  }
}

std::int64_t TensorSpec::elements() const {
  std::int64_t product = 1;
  for (const auto extent : shape) {
    product *= extent;
  }
  return product;
}

std::int64_t TensorSpec::row_bytes() const {
  return format.packed() ? packed_row_bytes(format, columns()) : 2 * columns();
}

std::string describe(const WeightFormat& format) {
  return describe(format.layers) + (format.packed() && format.embeddings ? ", embeddings too" : "");
}

std::vector<TensorSpec> layer_tensors(const ModelSpec& spec, const WeightFormat& format) {
  const auto kv_width = spec.kv_heads * spec.head_dim;
  std::vector<TensorSpec> tensors;
  add_norm(tensors, "attn_norm", spec.hidden);
  add_linear(tensors, "q", spec.heads * spec.head_dim, spec.hidden, format.layers);
  add_linear(tensors, "k", kv_width, spec.hidden, format.layers);
  add_linear(tensors, "v", kv_width, spec.hidden, format.layers);
  add_linear(tensors, "o", spec.hidden, spec.heads * spec.head_dim, format.layers);
  add_norm(tensors, "mlp_norm", spec.hidden);
  add_linear(tensors, "up", spec.ffn, spec.hidden, format.layers);
  add_linear(tensors, "down", spec.hidden, spec.ffn, format.layers);
  return tensors;
}

std::vector<TensorSpec> embedding_tensors(const ModelSpec& spec, const WeightFormat& format) {
  return {{"token.weight", {spec.vocab, spec.hidden}, format.tables()},
          {"position.weight", {spec.max_positions + spec.position_offset, spec.hidden}, {}}};
}

std::vector<TensorSpec> head_tensors(const ModelSpec& spec, const WeightFormat& format) {
  std::vector<TensorSpec> tensors;
  add_norm(tensors, "final_norm", spec.hidden);
  if (!spec.tied_head) {
    tensors.push_back({"weight", {spec.vocab, spec.hidden}, format.tables()});
  }
  return tensors;
}

std::int64_t layer_bytes(const ModelSpec& spec, const WeightFormat& format) {
  return total_bytes(layer_tensors(spec, format));
}

std::int64_t weight_bytes(const ModelSpec& spec, const WeightFormat& format) {
  return spec.layers * layer_bytes(spec, format) + total_bytes(embedding_tensors(spec, format)) +
         total_bytes(head_tensors(spec, format));
}

std::int64_t kv_bytes_per_token_and_layer(const ModelSpec& spec) {
  constexpr std::int64_t kHalfBytes = 2;
  return 2 * spec.kv_heads * spec.head_dim * kHalfBytes;
}

std::int64_t parameter_count(const ModelSpec& spec) { return weight_bytes(spec) / 2; }

}  // namespace stagecoach::model
