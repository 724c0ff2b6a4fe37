// Any vocab.json, merges.txt and special tokens: a FormatError, or a tokenizer that gives text
// back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/file.hpp"
#include "model/tokenizer.hpp"

namespace {

/// Cuts the next zero-terminated part off `rest`.
std::string next_part(std::string_view& rest) {
  const auto end = std::min(rest.find('\0'), rest.size());
  const std::string part(rest.substr(0, end));
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

const std::string& good_vocabulary() {
  static const std::string text =
      stagecoach::read_text_file(STAGECOACH_SOURCE_DIR "/examples/tiny-opt/vocab.json");
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  stagecoach::model::TokenizerFiles files;
  files.merges_txt = next_part(rest);
  files.special_tokens_json = next_part(rest);
  files.vocab_json = next_part(rest);
  // A special token may be spelled like an ordinary one, whose text it then takes.
  const bool must_give_back = files.vocab_json.empty() && files.special_tokens_json.empty();
  if (files.vocab_json.empty()) {
    files.vocab_json = good_vocabulary();
  }
  try {
    const stagecoach::model::Tokenizer tokenizer(files, 2060);
    const std::string text = "the LORD said unto Moses, </s> 42 times\n\n na\u00efve";
    std::string back;
    for (const auto token : tokenizer.encode(text)) {
      back += tokenizer.token_bytes(token, true);
    }
    if (must_give_back && back != text) {
      std::abort();
    }
  } catch (const stagecoach::FormatError&) {
    // The usual end of such files.
  }
  return 0;
}
