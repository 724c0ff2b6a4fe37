#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/packing.hpp"

namespace stagecoach::model {

enum class Activation { relu, gelu, gelu_tanh, silu };
enum class NormKind { layer_norm, rms_norm };
enum class PositionKind { learned, rotary };

/// What a decoder-only transformer computes. One description for all families: OPT today; grouped
/// queries (`kv_heads` < `heads`), rotary positions, RMS norm and gated MLPs are fields, not
/// engines.
struct ModelSpec {
  std::string family = "opt";
  std::string name;  ///< for people only
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< = heads without grouped queries
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;
  std::int64_t vocab = 0;
  std::int64_t max_positions = 0;    ///< longest sequence, prompt and generated tokens together
  std::int64_t position_offset = 0;  ///< rows of the position table before position 0 (OPT: 2)
  double norm_epsilon = 1e-5;
  Activation activation = Activation::relu;
  NormKind norm = NormKind::layer_norm;
  PositionKind position = PositionKind::learned;
  bool gated_mlp = false;
  bool tied_head = true;  ///< the head is the token embedding
  std::int64_t bos_token = 2;
  std::int64_t eos_token = 2;
  std::int64_t pad_token = 1;

  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;

  /// Throws ConfigError naming the first field that makes no sense or that this version cannot run.
  void validate() const;
};

/// Which weights are packed, and how. Vectors and positions never are.
struct WeightFormat {
  PackFormat layers{};      ///< of the matrices of all layers
  bool embeddings = false;  ///< token table and head likewise; else they are f16

  [[nodiscard]] bool packed() const { return layers.packed(); }
  /// Of the token table and the head.
  [[nodiscard]] PackFormat tables() const { return embeddings ? layers : PackFormat{}; }
  friend bool operator==(const WeightFormat& a, const WeightFormat& b) {
    return a.layers == b.layers && (!a.packed() || a.embeddings == b.embeddings);
  }
};
/// "f16"; "int4, groups of 64, embeddings too".
std::string describe(const WeightFormat& format);

/// One tensor of the weight store: its name within its group and its shape, row-major. Matrices are
/// [out, in], vectors [n].
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  PackFormat format{};  ///< of each row; none: f16

  [[nodiscard]] std::int64_t elements() const;
  /// A vector is one row.
  [[nodiscard]] std::int64_t rows() const { return shape.size() > 1 ? shape.front() : 1; }
  [[nodiscard]] std::int64_t columns() const { return elements() / rows(); }
  [[nodiscard]] std::int64_t row_bytes() const;
  [[nodiscard]] std::int64_t size_bytes() const { return rows() * row_bytes(); }
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

/// Tensors of one decoder layer in store order: attn_norm.{weight,bias}, q.{weight,bias}, k.*, v.*,
/// o.*, mlp_norm.*, up.*, down.* (a gated MLP would add gate.*).
std::vector<TensorSpec> layer_tensors(const ModelSpec& spec, const WeightFormat& format = {});
/// token.weight [vocab, hidden], position.weight [max_positions + position_offset, hidden].
std::vector<TensorSpec> embedding_tensors(const ModelSpec& spec, const WeightFormat& format = {});
/// final_norm.{weight,bias}; and weight [vocab, hidden] when the head is not tied.
std::vector<TensorSpec> head_tensors(const ModelSpec& spec, const WeightFormat& format = {});

std::int64_t layer_bytes(const ModelSpec& spec, const WeightFormat& format = {});
/// Of the whole model.
std::int64_t weight_bytes(const ModelSpec& spec, const WeightFormat& format = {});
/// K and V of one token in one layer, f16.
std::int64_t kv_bytes_per_token_and_layer(const ModelSpec& spec);
/// Parameters of the whole model.
std::int64_t parameter_count(const ModelSpec& spec);

/// From a Hugging Face config.json's text. ConfigError/FormatError name `where` and the key.
ModelSpec spec_from_hf_config(const std::string& json_text, const std::string& where);

/// From the keys of an ini file of configs/models (docs/formats.md). Unknown keys are ConfigErrors.
ModelSpec spec_from_settings(const std::map<std::string, std::string>& settings,
                             const std::string& where);

/// Canonical one-line JSON, stored in the weight store; `spec_from_json` reads it back exactly.
std::string spec_to_json(const ModelSpec& spec);
ModelSpec spec_from_json(const std::string& text, const std::string& where);

}  // namespace stagecoach::model
