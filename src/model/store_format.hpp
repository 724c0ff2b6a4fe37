#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/spec.hpp"
#include "model/weight_store.hpp"

namespace stagecoach::model {

/// Names and versions of the store file, shared by its reader and writer (docs/formats.md).
inline constexpr const char* kFormatAttribute = "format";
inline constexpr const char* kFormatName = "stagecoach weights";
inline constexpr const char* kVersionAttribute = "format_version";
inline constexpr std::uint64_t kFormatVersion = 1;        ///< of a store in f16
inline constexpr std::uint64_t kPackedFormatVersion = 2;  ///< of one with packed weights
inline constexpr const char* kCompleteAttribute = "complete";
inline constexpr const char* kSpecAttribute = "spec";
inline constexpr const char* kSpecChecksumAttribute = "spec_xxh3_64";
inline constexpr const char* kPackingAttribute = "weights_packing";
inline constexpr const char* kGroupAttribute = "weights_group";
inline constexpr const char* kEmbeddingsAttribute = "weights_embeddings";
inline constexpr const char* kChecksumAttribute = "xxh3_64";
inline constexpr const char* kTokenizerGroup = "tokenizer";
inline constexpr const char* kLayersGroup = "layers";

/// Dataset name within the tokenizer group and the string it holds.
using TokenizerMember = std::pair<const char*, std::string TokenizerFiles::*>;
inline constexpr std::array<TokenizerMember, 3> kTokenizerMembers{
    {{"vocab.json", &TokenizerFiles::vocab_json},
     {"merges.txt", &TokenizerFiles::merges_txt},
     {"special_tokens.json", &TokenizerFiles::special_tokens_json}}};

struct GroupTensors {
  std::string group;
  std::vector<TensorSpec> tensors;
};

/// Every group of a model's store with its tensors, in file order.
std::vector<GroupTensors> store_layout(const ModelSpec& spec, const WeightFormat& weights);

/// The shape of a tensor's dataset: [rows, bytes of a row] where it is packed.
std::vector<std::int64_t> dataset_shape(const TensorSpec& tensor);

}  // namespace stagecoach::model
