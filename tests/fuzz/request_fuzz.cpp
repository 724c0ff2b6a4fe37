// Any request file: a ConfigError of one line, or requests that keep every promise of request.hpp.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "base/file.hpp"
#include "job/request_reader.hpp"
#include "job/result_writer.hpp"
#include "model/utf8.hpp"

namespace {

using stagecoach::job::Request;

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

stagecoach::model::ModelSpec small_context() {
  stagecoach::model::ModelSpec spec;
  spec.vocab = 2048;
  spec.max_positions = 64;
  return spec;
}

void check(const Request& request, const stagecoach::model::ModelSpec& spec) {
  const auto prompt = static_cast<std::int64_t>(request.prompt_tokens.size());
  require(prompt >= 1 && request.max_new_tokens >= 1);
  require(prompt + request.max_new_tokens <= spec.max_positions);
  for (const auto token : request.prompt_tokens) {
    require(token >= 0 && token < spec.vocab);
  }
  require(request.temperature >= 0 && request.top_k >= 0);
  require(request.top_p > 0 && request.top_p <= 1);
  for (const auto& stop : request.stop) {
    require(!stop.empty());
  }
  const auto line =
      stagecoach::job::format_result(request, {}, request.prompt.value_or(""), &tokenizer(), {});
  require(line.find('\n') == line.size() - 1);
  require(stagecoach::model::find_invalid_utf8(line) == std::string_view::npos);
}

void read(const std::string& text, stagecoach::job::OnError on_error) {
  static const stagecoach::Log log("", "off");
  const auto spec = small_context();
  std::istringstream in(text);
  try {
    const auto list = read_requests(in, "in", {}, spec, &tokenizer(), on_error, log);
    std::set<std::string> ids;
    for (const auto& request : list.requests) {
      check(request, spec);
      require(ids.insert(request.id).second);
    }
  } catch (const stagecoach::ConfigError& error) {
    require(on_error == stagecoach::job::OnError::stop);
    const std::string what = error.what();
    require(what.starts_with("in:") && what.find('\n') == std::string::npos);
    require(stagecoach::model::find_invalid_utf8(what) == std::string_view::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text, stagecoach::job::OnError::stop);
  read(text, stagecoach::job::OnError::skip);
  return 0;
}
