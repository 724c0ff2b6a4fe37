#include "job/eval_text.hpp"

#include <algorithm>

#include "model/utf8.hpp"

namespace stagecoach::job {
namespace {

/// Python's str.isspace, which is Unicode's white space and four separators of ASCII.
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

/// Calls `take(offset, size, is white space)` for every character.
template <typename Take>
void for_each_character(std::string_view text, const Take& take) {
  for (std::size_t at = 0; at < text.size();) {
    const auto rest = text.substr(at);
    const auto size = model::first_utf8_unit(rest).size;
    take(at, size, is_space(model::first_code_point(rest)));
    at += size;
  }
}

/// Pieces between runs of at least `least` newlines.
std::vector<std::string_view> split_at_newlines(std::string_view text, std::size_t least) {
  const std::string separator(least, '\n');
  std::vector<std::string_view> pieces;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    if (end > begin) {
      pieces.push_back(text.substr(begin, end - begin));
    }
    begin = std::min(text.find_first_not_of('\n', end), text.size());
  }
  return pieces;
}

}  // namespace

std::vector<std::string_view> split_documents(std::string_view text, DocumentSplit split) {
  switch (split) {
    case DocumentSplit::blank_lines:
      return split_at_newlines(text, 2);
    case DocumentSplit::lines:
      return split_at_newlines(text, 1);
    case DocumentSplit::whole:
      break;
  }
  return text.empty() ? std::vector<std::string_view>{} : std::vector<std::string_view>{text};
}

std::int64_t count_words(std::string_view text) {
  std::int64_t words = 1;
  bool in_space = false;
  for_each_character(text, [&](std::size_t, std::size_t, bool space) {
    words += space && !in_space ? 1 : 0;
    in_space = space;
  });
  return words;
}

std::size_t size_without_trailing_space(std::string_view text) {
  std::size_t end = 0;
  for_each_character(
      text, [&](std::size_t at, std::size_t size, bool space) { end = space ? end : at + size; });
  return end;
}

}  // namespace stagecoach::job
