#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/weight_store.hpp"

namespace stagecoach::model {

/// Byte-level BPE as GPT-2 and OPT use it (vocab.json + merges.txt). Immutable after construction;
/// all const calls may run from several threads at once.
class Tokenizer {
 public:
  /// FormatError names the file and what is wrong with it. `vocab_size`: ids are < this.
  Tokenizer(const TokenizerFiles& files, std::int64_t vocab_size);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Token ids of valid UTF-8 text, without a leading </s>. Special tokens written in the text
  /// become their ids. Throws ConfigError on invalid UTF-8.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;

  /// The bytes that one token stands for (not always whole UTF-8). Special tokens give their text
  /// if `special` is true, else nothing. Unknown ids give nothing.
  [[nodiscard]] std::string token_bytes(std::int32_t token, bool special = false) const;

  /// Text of the tokens: bytes joined across tokens, special tokens left out, every maximal invalid
  /// UTF-8 part replaced by U+FFFD.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

/// `bytes` with every maximal invalid subpart replaced by U+FFFD (Unicode 15, section 3.9, the
/// practice of the WHATWG and of Python's errors="replace").
std::string replace_invalid_utf8(std::string_view bytes);

}  // namespace stagecoach::model
