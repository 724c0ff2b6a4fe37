#include "job/request_reader.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "job/json_line.hpp"

namespace stagecoach::job {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 10> kKeys = {
    "id",   "prompt", "prompt_token_ids", "max_new_tokens", "temperature", "top_k", "top_p",
    "seed", "stop",   "ignore_eos"};

/// Makes a Request of one line. Errors are ConfigErrors without the place.
class LineReader {
 public:
  LineReader(const std::string& text, const RequestDefaults& defaults, const model::ModelSpec& spec,
             const model::Tokenizer* tokenizer)
      : line_(text, R"({"id": ..., "prompt": ...})"),
        defaults_(defaults),
        spec_(spec),
        tokenizer_(tokenizer) {}

  [[nodiscard]] Request read() const {
    line_.refuse_unknown_keys(kKeys);
    Request request;
    auto id = line_.id();
    request.id = std::move(id.text);
    request.id_is_number = id.is_number;
    read_settings(request);
    read_prompt(request);
    fit_context(request);
    return request;
  }

 private:
  void read_settings(Request& request) const {
    request.max_new_tokens = line_.integer<std::int64_t>(
        "max_new_tokens", 1, std::numeric_limits<std::int64_t>::max(), defaults_.max_new_tokens);
    request.top_k = line_.integer<std::int32_t>(
        "top_k", 0, std::numeric_limits<std::int32_t>::max(), defaults_.top_k);
    request.seed = line_.integer<std::uint64_t>(
        "seed", 0, std::numeric_limits<std::uint64_t>::max(), defaults_.seed);
    request.temperature = number(
        "temperature", "a number of at least 0 (0 is greedy)",
        [](double value) { return value >= 0; }, defaults_.temperature);
    request.top_p = number(
        "top_p", "a number above 0 and up to 1 (1 is off)",
        [](double value) { return value > 0 && value <= 1; }, defaults_.top_p);
    request.stop = stop_strings();
    request.ignore_eos = boolean("ignore_eos", defaults_.ignore_eos);
  }

  double number(const char* key, const char* wanted, bool (*fits)(double), double fallback) const {
    const auto* value = line_.find(key);
    if (value == nullptr) {
      return fallback;
    }
    if (!value->is_number() || !std::isfinite(value->get<double>()) ||
        !fits(value->get<double>())) {
      JsonLine::fail(key, wanted, *value);
    }
    return value->get<double>();
  }

  bool boolean(const char* key, bool fallback) const {
    const auto* value = line_.find(key);
    if (value != nullptr && !value->is_boolean()) {
      JsonLine::fail(key, "true or false", *value);
    }
    return value == nullptr ? fallback : value->get<bool>();
  }

  [[nodiscard]] std::vector<std::string> stop_strings() const {
    auto stop = defaults_.stop;
    if (const auto* value = line_.find("stop"); value != nullptr) {
      stop.clear();
      for (const auto& one : value->is_array() ? *value : json::array({*value})) {
        if (!one.is_string() || one.get_ref<const std::string&>().empty()) {
          JsonLine::fail("stop", "a string or a list of strings, none empty", *value);
        }
        stop.push_back(one.get<std::string>());
      }
    }
    if (!stop.empty() && tokenizer_ == nullptr) {
      throw ConfigError("stop strings need a tokenizer, and the model has none; leave them out");
    }
    return stop;
  }

  void read_prompt(Request& request) const {
    const auto* text = line_.find("prompt");
    const auto* tokens = line_.find("prompt_token_ids");
    if ((text == nullptr) == (tokens == nullptr)) {
      throw ConfigError(fmt::format("there is {} of \"prompt\" and \"prompt_token_ids\"; give one",
                                    text == nullptr ? "neither" : "each"));
    }
    if (text == nullptr) {
      request.prompt_tokens = JsonLine::token_ids("prompt_token_ids", *tokens, spec_.vocab);
      return;
    }
    request.prompt = JsonLine::string("prompt", *text);
    if (tokenizer_ == nullptr) {
      throw ConfigError("the model has no tokenizer; give \"prompt_token_ids\" and not \"prompt\"");
    }
    request.prompt_tokens.push_back(static_cast<std::int32_t>(spec_.bos_token));
    const auto words = tokenizer_->encode(*request.prompt);
    request.prompt_tokens.insert(request.prompt_tokens.end(), words.begin(), words.end());
  }

  void fit_context(Request& request) const {
    const auto prompt = static_cast<std::int64_t>(request.prompt_tokens.size());
    const auto room = spec_.max_positions - prompt;
    if (room < 1) {
      throw ConfigError(fmt::format(
          "the prompt has {} tokens and leaves no room for a new one: the model takes {} "
          "in all; shorten it by {}",
          prompt, spec_.max_positions, 1 - room));
    }
    request.max_new_tokens = std::min(request.max_new_tokens, room);
  }

  const JsonLine line_;
  const RequestDefaults& defaults_;
  const model::ModelSpec& spec_;
  const model::Tokenizer* tokenizer_;
};

}  // namespace

RequestList read_requests(std::istream& in, const std::string& name,
                          const RequestDefaults& defaults, const model::ModelSpec& spec,
                          const model::Tokenizer* tokenizer, OnError on_error, const Log& log) {
  RequestList list;
  UniqueIds ids;
  list.skipped =
      read_lines(in, name, on_error, log, [&](const std::string& text, std::int64_t line) {
        auto request = LineReader(text, defaults, spec, tokenizer).read();
        request.line = line;
        ids.add(request.id, line);
        list.requests.push_back(std::move(request));
      });
  return list;
}

RequestList read_requests(const std::string& path, const RequestDefaults& defaults,
                          const model::ModelSpec& spec, const model::Tokenizer* tokenizer,
                          OnError on_error, const Log& log) {
  if (path == "-") {
    return read_requests(std::cin, "standard input", defaults, spec, tokenizer, on_error, log);
  }
  auto in = open_input(path, "--prompts");
  return read_requests(in, path, defaults, spec, tokenizer, on_error, log);
}

}  // namespace stagecoach::job
