#include "job/text_assembler.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "model/utf8.hpp"

namespace stagecoach::job {

TextAssembler::Matcher::Matcher(std::string pattern_in)
    : pattern(std::move(pattern_in)), border(pattern.size(), 0) {
  STAGECOACH_CHECK(!pattern.empty(), "an empty stop string");
  for (std::size_t i = 1, length = 0; i < pattern.size(); ++i) {
    while (length > 0 && pattern[i] != pattern[length]) {
      length = border[length - 1];
    }
    length += pattern[i] == pattern[length] ? 1 : 0;
    border[i] = length;
  }
}

bool TextAssembler::Matcher::advance(char byte) {
  while (matched > 0 && pattern[matched] != byte) {
    matched = border[matched - 1];
  }
  matched += pattern[matched] == byte ? 1 : 0;
  return matched == pattern.size();
}

TextAssembler::TextAssembler(const model::Tokenizer* tokenizer, std::span<const std::string> stop)
    : tokenizer_(tokenizer), matchers_(stop.begin(), stop.end()) {}

bool TextAssembler::push(std::int32_t token) {
  if (tokenizer_ != nullptr && !stopped_) {
    held_back_ += tokenizer_->token_bytes(token);
    std::string whole;
    held_back_.erase(0, model::append_valid_utf8(whole, held_back_));
    append(whole);
  }
  return stopped_;
}

void TextAssembler::finish() {
  if (!held_back_.empty() && !stopped_) {
    held_back_.clear();
    append(model::kReplacementCharacter);
  }
}

void TextAssembler::append(std::string_view whole_characters) {
  for (const char byte : whole_characters) {
    text_ += byte;
    std::size_t longest = 0;
    for (auto& matcher : matchers_) {
      if (matcher.advance(byte)) {
        longest = std::max(longest, matcher.pattern.size());
      }
    }
    if (longest > 0) {
      text_.resize(text_.size() - longest);
      stopped_ = true;
      return;
    }
  }
}

}  // namespace stagecoach::job
