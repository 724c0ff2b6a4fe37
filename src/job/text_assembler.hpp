#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.hpp"

namespace stagecoach::job {

/// The text of one sequence as its tokens come, and the end that a stop string puts to it.
///
/// The work is linear in the text for each stop string. Text is whole UTF-8 at all times: the bytes
/// of a character whose rest is still to come are held back. Of several stop strings the one that
/// is complete first ends the text, of those the longest; so the result does not depend on where
/// tokens are cut.
class TextAssembler {
 public:
  /// `tokenizer` must outlive this; nullptr, for a model without one, leaves the text empty. `stop`
  /// strings must not be empty.
  TextAssembler(const model::Tokenizer* tokenizer, std::span<const std::string> stop);

  /// Appends a token; special tokens have no text. Returns `stopped()`. Tokens after a stop are
  /// ignored. The </s> that ends a sequence need not be pushed.
  bool push(std::int32_t token);

  /// Ends the sequence: held-back bytes become U+FFFD, as in Tokenizer::decode. May complete a stop
  /// string that contains U+FFFD.
  void finish();

  [[nodiscard]] bool stopped() const noexcept { return stopped_; }

  /// The text so far, without the stop string once there was one. Before that it may end in the
  /// first part of one.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  /// A stop string and how much of it the text ends with (Knuth, Morris and Pratt).
  struct Matcher {
    explicit Matcher(std::string pattern);
    /// Whether the pattern ends at this byte. Must not be called again after it did.
    bool advance(char byte);

    std::string pattern;
    std::vector<std::size_t> border;  ///< longest proper border of each prefix
    std::size_t matched = 0;
  };

  void append(std::string_view whole_characters);

  const model::Tokenizer* tokenizer_;
  std::vector<Matcher> matchers_;
  std::string text_;
  std::string held_back_;
  bool stopped_ = false;
};

}  // namespace stagecoach::job
