// Any bytes: text that is UTF-8 goes there and back, everything else is refused, and decoding and
// assembling agree and give UTF-8 for any tokens.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "job/text_assembler.hpp"
#include "model/tokenizer.hpp"
#include "model/utf8.hpp"

namespace {

using stagecoach::model::Tokenizer;

const Tokenizer& tokenizer() {
  const std::string folder = STAGECOACH_SOURCE_DIR "/examples/tiny-opt";
  static const Tokenizer instance({stagecoach::read_text_file(folder + "/vocab.json"),
                                   stagecoach::read_text_file(folder + "/merges.txt"),
                                   stagecoach::read_text_file(folder + "/special_tokens_map.json")},
                                  2048);
  return instance;
}

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

void check_text(std::string_view text) {
  const bool valid = stagecoach::model::find_invalid_utf8(text) == std::string_view::npos;
  try {
    std::string back;
    for (const auto token : tokenizer().encode(text)) {
      back += tokenizer().token_bytes(token, true);
    }
    require(valid && back == text);
  } catch (const stagecoach::ConfigError&) {
    require(!valid);
  }
  const auto replaced = stagecoach::model::replace_invalid_utf8(text);
  require(stagecoach::model::find_invalid_utf8(replaced) == std::string_view::npos);
  require(!valid || replaced == text);
}

void check_tokens(std::string_view bytes) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i + 2 <= bytes.size(); i += 2) {
    std::uint16_t token = 0;
    std::memcpy(&token, bytes.data() + i, sizeof(token));
    tokens.push_back(token % 2100);
  }
  stagecoach::job::TextAssembler assembler(&tokenizer(), {});
  for (const auto token : tokens) {
    require(!assembler.push(token));
    require(stagecoach::model::find_invalid_utf8(assembler.text()) == std::string_view::npos);
  }
  assembler.finish();
  require(assembler.text() == tokenizer().decode(tokens));
}

void check_stop(std::string_view bytes) {
  if (bytes.size() < 2 || bytes.size() > 4096) {
    return;
  }
  const std::size_t length = 1 + static_cast<unsigned char>(bytes[0]) % 8;
  const auto text = stagecoach::model::replace_invalid_utf8(bytes.substr(1));
  const std::vector<std::string> stop = {text.substr(text.size() / 2, length)};
  if (stop.front().empty()) {
    return;
  }
  stagecoach::job::TextAssembler assembler(&tokenizer(), stop);
  std::string whole;
  for (const auto token : tokenizer().encode(text)) {
    assembler.push(token);
    whole += tokenizer().token_bytes(token);
  }
  assembler.finish();
  require(assembler.text() == whole.substr(0, whole.find(stop.front())));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_text(bytes);
  check_tokens(bytes);
  check_stop(bytes);
  return 0;
}
