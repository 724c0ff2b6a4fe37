#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "model/safetensors.hpp"
#include "model/spec.hpp"
#include "model/weight_store.hpp"

namespace stagecoach::model {

/// Where a tensor of the store comes from.
struct CheckpointTensor {
  std::string path;  ///< safetensors file
  std::string name;  ///< as the file has it
  NumberType type = NumberType::f16;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

/// A Hugging Face OPT checkpoint: config.json, model.safetensors or model.safetensors.index.json
/// with its shards, and the tokenizer's files where they exist. Reads headers only; tensor names
/// may start with "model." and "decoder.", either, or neither.
class Checkpoint {
 public:
  /// ConfigError or FormatError, naming the file and the key or tensor, if anything that the model
  /// needs is missing, has another shape, or has a type that cannot be stored as f16.
  explicit Checkpoint(const std::string& folder);

  [[nodiscard]] const ModelSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] const TokenizerFiles& tokenizer() const noexcept { return tokenizer_; }
  /// The source of tensor `name` of a store group.
  [[nodiscard]] const CheckpointTensor& find(const std::string& group,
                                             const std::string& name) const;

 private:
  ModelSpec spec_;
  TokenizerFiles tokenizer_;
  std::map<std::string, CheckpointTensor> tensors_;  ///< by "group/name" of the store
};

/// vocab.json, merges.txt and special_tokens_map.json (or added_tokens.json) of `folder`; empty
/// where they do not exist. ConfigError if there is only one of vocab.json and merges.txt.
TokenizerFiles read_tokenizer_files(const std::string& folder);

/// The Hugging Face name, without "model.decoder.", of a store tensor of an OPT model:
/// ("layers/003", "q.weight") is "layers.3.self_attn.q_proj.weight".
std::string opt_tensor_name(const std::string& group, const std::string& name);

}  // namespace stagecoach::model
