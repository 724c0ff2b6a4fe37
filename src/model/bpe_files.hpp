#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/weight_store.hpp"

namespace stagecoach::model {

/// A pair of tokens that becomes one; a lower rank goes first.
struct BpeMerge {
  std::int32_t rank = 0;
  std::int32_t merged = 0;
};

/// A token that is found in the text before BPE.
struct AddedToken {
  std::string text;  ///< valid UTF-8, not empty
  std::int32_t id = 0;
  bool special = true;  ///< left out of decoded text
};

/// The contents of a tokenizer's files, checked.
struct BpeTables {
  std::vector<std::string> token_bytes;      ///< by id; ids that the vocabulary skips are empty
  std::array<std::int32_t, 256> byte_token;  ///< the token of each single byte
  std::unordered_map<std::uint64_t, BpeMerge> merges;  ///< by pair_key
  std::vector<AddedToken> added;                       ///< each text and each id once

  static std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
           static_cast<std::uint32_t>(right);
  }
};

/// Reads vocab.json (token -> id), merges.txt (a pair a line, best first; "#version" lines and
/// blank ones are skipped; a repeated pair takes its last rank, as in Hugging Face) and the special
/// tokens: special_tokens_map.json ("*_token" and "additional_special_tokens", strings or objects
/// with "content"), added_tokens.json (text -> id, all taken as special) or the
/// "added_tokens_decoder" of a tokenizer_config.json. FormatError names the file, and the line or
/// the token.
BpeTables read_bpe_files(const TokenizerFiles& files, std::int64_t vocab_size);

}  // namespace stagecoach::model
