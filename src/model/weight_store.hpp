#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/spec.hpp"

namespace stagecoach::model {

/// The files a tokenizer is made of, carried inside the store so that one file is the whole model.
struct TokenizerFiles {
  std::string vocab_json;           ///< vocab.json; empty when the model has no tokenizer
  std::string merges_txt;           ///< merges.txt
  std::string special_tokens_json;  ///< special_tokens_map.json or added_tokens.json, may be empty
};

/// Where one dataset lies in the store file.
struct StoredTensor {
  TensorSpec tensor;
  std::uint64_t offset_bytes = 0;  ///< page-aligned
  std::uint64_t checksum = 0;      ///< XXH3-64 of its bytes
};

/// Groups are "embedding", "layers/000", ..., "head".
std::string layer_group(std::int64_t layer);
inline constexpr const char* kEmbeddingGroup = "embedding";
inline constexpr const char* kHeadGroup = "head";

/// Everything about a store but its weights: plain data, read once through HDF5, after which
/// weights are read as bytes from the file at `offset_bytes`.
struct StoreIndex {
  std::string path;
  ModelSpec spec;
  WeightFormat weights;  ///< what of them is packed
  TokenizerFiles tokenizer;
  std::map<std::string, std::vector<StoredTensor>> groups;

  /// ConfigError if there is no such tensor.
  [[nodiscard]] const StoredTensor& find(const std::string& group, const std::string& name) const;
  /// Hash over the spec, the weights' format and every checksum: equal stores have equal digests.
  [[nodiscard]] std::uint64_t digest() const;
};

/// Opens, checks shapes, types, layout and alignment, and closes. ConfigError when the file is
/// missing or is no store of these versions; FormatError when it is damaged.
StoreIndex read_store_index(const std::string& path);

/// Reads every dataset and compares its checksum; returns the names ("layers/003/q.weight") that
/// differ. `progress(done_bytes, total_bytes)` may be empty.
std::vector<std::string> verify_store(
    const StoreIndex& index, const std::function<void(std::uint64_t, std::uint64_t)>& progress);

/// Writes a store: create, then each tensor once, whole, in pieces in row-major order; then finish.
class StoreWriter {
 public:
  /// Creates the file at `path` (see StagedFile for the rename) with all groups and datasets.
  StoreWriter(const std::string& path, const ModelSpec& spec, const TokenizerFiles& tokenizer,
              const WeightFormat& weights = {});
  ~StoreWriter();
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;
  StoreWriter(StoreWriter&&) = delete;
  StoreWriter& operator=(StoreWriter&&) = delete;

  /// Writes the next bytes of group/name, as its TensorSpec's format has them.
  void append(const std::string& group, const std::string& name, std::span<const std::byte> bytes);
  /// Writes checksums; throws InternalError if a tensor is incomplete.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stagecoach::model
