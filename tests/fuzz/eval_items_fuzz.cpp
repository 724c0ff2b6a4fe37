// Any input of `eval`: a ConfigError of one line, or items that keep every promise of
// eval_items.hpp.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "base/file.hpp"
#include "job/eval_items.hpp"
#include "job/eval_scores.hpp"
#include "job/eval_text.hpp"
#include "model/utf8.hpp"

namespace {

using stagecoach::job::EvalItem;
using stagecoach::job::EvalItems;
using stagecoach::job::EvalReading;
using stagecoach::job::OnError;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

const stagecoach::model::Tokenizer& tokenizer() {
  const std::string folder = STAGECOACH_SOURCE_DIR "/examples/tiny-opt";
  static const stagecoach::model::Tokenizer instance(
      {stagecoach::read_text_file(folder + "/vocab.json"),
       stagecoach::read_text_file(folder + "/merges.txt"),
       stagecoach::read_text_file(folder + "/special_tokens_map.json")},
      2048);
  return instance;
}

void check(const EvalItem& item, const stagecoach::model::ModelSpec& spec) {
  const auto& tokens = item.scored.tokens;
  require(item.scored.score_from >= 1 && item.scored.targets() >= 1);
  require(static_cast<std::int64_t>(tokens.size()) <= spec.max_positions + 1);
  for (const auto token : tokens) {
    require(token >= 0 && token < spec.vocab);
  }
  stagecoach::job::Request request;
  request.id = item.id.text;
  request.id_is_number = item.id.is_number;
  const auto line = stagecoach::job::format_continuation(request, {});
  require(line.find('\n') == line.size() - 1);
  require(stagecoach::model::find_invalid_utf8(line) == std::string_view::npos);
}

template <typename Reader>
void read(Reader reader, const std::string& text, OnError on_error) {
  static const stagecoach::Log log("", "off");
  stagecoach::model::ModelSpec spec;
  spec.vocab = 2048;
  spec.max_positions = 64;
  std::istringstream in(text);
  try {
    const EvalItems list = reader(in, "in", EvalReading{spec, &tokenizer(), on_error, log});
    for (const auto& item : list.items) {
      check(item, spec);
    }
  } catch (const stagecoach::ConfigError& error) {
    require(on_error == OnError::stop);
    const std::string what = error.what();
    require(what.starts_with("in:") && what.find('\n') == std::string::npos);
    require(stagecoach::model::find_invalid_utf8(what) == std::string_view::npos);
  }
}

/// Documents are parts of the text, and words no more than characters and one.
void split(const std::string& text) {
  using stagecoach::job::DocumentSplit;
  if (stagecoach::model::find_invalid_utf8(text) != std::string_view::npos) {
    return;
  }
  for (const auto way : {DocumentSplit::whole, DocumentSplit::blank_lines, DocumentSplit::lines}) {
    std::size_t size = 0;
    for (const auto document : stagecoach::job::split_documents(text, way)) {
      require(!document.empty());
      size += document.size();
      const auto words = stagecoach::job::count_words(document);
      require(words >= 1 && static_cast<std::size_t>(words) <= document.size() + 1);
    }
    require(size <= text.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const auto on_error : {OnError::stop, OnError::skip}) {
    read(stagecoach::job::read_last_words, text, on_error);
    read(stagecoach::job::read_continuations, text, on_error);
  }
  split(text);
  return 0;
}
