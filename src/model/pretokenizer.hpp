#pragma once

#include <memory>
#include <string_view>
#include <vector>

namespace stagecoach::model {

/// Cuts text into the words that BPE works on, by GPT-2's pattern
/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`. Immutable; const
/// calls may run from several threads at once.
///
/// The classes are those of Unicode 16 whatever the PCRE2 library knows (from Unicode 14 on), as in
/// Hugging Face `tokenizers` 0.23; `\s` is exactly the property White_Space, as there. Code points
/// that a later Unicode assigns count as "neither letter nor number" until the library learns them.
class PreTokenizer {
 public:
  PreTokenizer();
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  /// The words in order; joined they are `text`, which must be valid UTF-8 and outlive the views.
  [[nodiscard]] std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace stagecoach::model
