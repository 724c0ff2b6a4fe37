// Any vocab.json, merges.txt and special tokens: a FormatError, or a tokenizer that gives text
// back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "model/tokenizer.hpp"
#include "model/utf8.hpp"

namespace {

/// Cuts the next zero-terminated part off `rest`.
std::string next_part(std::string_view& rest) {
  const auto end = std::min(rest.find('\0'), rest.size());
  const std::string part(rest.substr(0, end));
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

/// The 256 byte symbols and a few merged ones: small, so that a run is quick.
std::string make_vocabulary() {
  std::string text = "{\"th\":256,\"the\":257,\"</s>\":258";
  int id = 0;
  for (char32_t symbol = 0x21; symbol < 256 + 68; ++symbol) {
    const bool unused = (symbol > 0x7e && symbol < 0xa1) || symbol == 0xad;
    if (!unused) {
      text += ",\"";
      text += symbol == '"' || symbol == '\\' ? "\\" : "";
      stagecoach::model::append_code_point(text, symbol);
      text += "\":" + std::to_string(id++);
    }
  }
  return text + "}";
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
    static const std::string vocabulary = make_vocabulary();
    files.vocab_json = vocabulary;
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
