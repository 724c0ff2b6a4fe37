#include "job/request_reader.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "model/json_error.hpp"
#include "model/json_fields.hpp"

namespace stagecoach::job {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 10> kKeys = {
    "id",   "prompt", "prompt_token_ids", "max_new_tokens", "temperature", "top_k", "top_p",
    "seed", "stop",   "ignore_eos"};

/// Refuses what no request has before it takes memory: repeated keys, and values below lists.
class ShapeGuard {
 public:
  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth >= 2) {
      throw ConfigError("lists and objects are nested too deeply; a request is one flat object");
    }
    if (event == json::parse_event_t::key && depth == 1 &&
        !seen_.insert(parsed.get<std::string>()).second) {
      throw ConfigError(
          fmt::format("key {} is there twice; keep one", model::describe_json(parsed)));
    }
    return true;
  }

 private:
  std::unordered_set<std::string> seen_;
};

json parse_object(const std::string& text) {
  try {
    ShapeGuard guard;
    auto object = json::parse(text, std::ref(guard));
    if (object.is_object()) {
      return object;
    }
  } catch (const json::exception& error) {
    auto what = model::describe_json_error(error.what());
    // The library counts lines within this one.
    constexpr std::string_view kWithin = "parse error at line 1, ";
    if (what.starts_with(kWithin)) {
      what.erase(0, kWithin.size());
    }
    throw ConfigError(fmt::format("not valid JSON ({}); write one JSON object a line", what));
  }
  throw ConfigError("not a JSON object; write {\"id\": ..., \"prompt\": ...}");
}

/// Makes a Request of one line. Errors are ConfigErrors without the place.
class LineReader {
 public:
  LineReader(const RequestDefaults& defaults, const model::ModelSpec& spec,
             const model::Tokenizer* tokenizer)
      : defaults_(defaults), spec_(spec), tokenizer_(tokenizer) {}

  Request read(const std::string& text) {
    object_ = parse_object(text);
    refuse_unknown_keys();
    Request request;
    read_id(request);
    read_settings(request);
    read_prompt(request);
    fit_context(request);
    return request;
  }

 private:
  /// nullptr when the key is missing or null.
  [[nodiscard]] const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  [[noreturn]] static void fail(const char* key, std::string_view wanted, const json& value) {
    throw ConfigError(
        fmt::format("\"{}\" is {}; it must be {}", key, model::describe_json(value), wanted));
  }

  void refuse_unknown_keys() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
        throw ConfigError(fmt::format("unknown key {}; known are {}", model::describe_json(key),
                                      fmt::join(kKeys, ", ")));
      }
    }
  }

  void read_id(Request& request) const {
    const auto* id = find("id");
    if (id == nullptr) {
      throw ConfigError("there is no \"id\"; give each request one of its own");
    }
    if (id->is_string()) {
      request.id = id->get<std::string>();
    } else if (id->is_number_integer()) {
      request.id = id->dump();
      request.id_is_number = true;
    } else {
      fail("id", "a string or a 64-bit whole number", *id);
    }
  }

  void read_settings(Request& request) const {
    request.max_new_tokens = integer<std::int64_t>(
        "max_new_tokens", 1, std::numeric_limits<std::int64_t>::max(), defaults_.max_new_tokens);
    request.top_k = integer<std::int32_t>("top_k", 0, std::numeric_limits<std::int32_t>::max(),
                                          defaults_.top_k);
    request.seed = integer<std::uint64_t>("seed", 0, std::numeric_limits<std::uint64_t>::max(),
                                          defaults_.seed);
    request.temperature = number(
        "temperature", "a number of at least 0 (0 is greedy)",
        [](double value) { return value >= 0; }, defaults_.temperature);
    request.top_p = number(
        "top_p", "a number above 0 and up to 1 (1 is off)",
        [](double value) { return value > 0 && value <= 1; }, defaults_.top_p);
    request.stop = stop_strings();
    request.ignore_eos = boolean("ignore_eos", defaults_.ignore_eos);
  }

  template <typename T>
  T integer(const char* key, T low, T high, T fallback) const {
    const auto* value = find(key);
    if (value == nullptr) {
      return fallback;
    }
    if (!value->is_number_integer() || !in_range(*value, low, high)) {
      fail(key, fmt::format("a whole number from {} to {}", low, high), *value);
    }
    return value->get<T>();
  }

  template <typename T>
  static bool in_range(const json& value, T low, T high) {
    if (value.is_number_unsigned()) {
      const auto number = value.get<std::uint64_t>();
      return std::cmp_greater_equal(number, low) && std::cmp_less_equal(number, high);
    }
    const auto number = value.get<std::int64_t>();
    return std::cmp_greater_equal(number, low) && std::cmp_less_equal(number, high);
  }

  double number(const char* key, const char* wanted, bool (*fits)(double), double fallback) const {
    const auto* value = find(key);
    if (value == nullptr) {
      return fallback;
    }
    if (!value->is_number() || !std::isfinite(value->get<double>()) ||
        !fits(value->get<double>())) {
      fail(key, wanted, *value);
    }
    return value->get<double>();
  }

  bool boolean(const char* key, bool fallback) const {
    const auto* value = find(key);
    if (value != nullptr && !value->is_boolean()) {
      fail(key, "true or false", *value);
    }
    return value == nullptr ? fallback : value->get<bool>();
  }

  [[nodiscard]] std::vector<std::string> stop_strings() const {
    auto stop = defaults_.stop;
    if (const auto* value = find("stop"); value != nullptr) {
      stop.clear();
      for (const auto& one : value->is_array() ? *value : json::array({*value})) {
        if (!one.is_string() || one.get_ref<const std::string&>().empty()) {
          fail("stop", "a string or a list of strings, none empty", *value);
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
    const auto* text = find("prompt");
    const auto* tokens = find("prompt_token_ids");
    if ((text == nullptr) == (tokens == nullptr)) {
      throw ConfigError(fmt::format("there is {} of \"prompt\" and \"prompt_token_ids\"; give one",
                                    text == nullptr ? "neither" : "each"));
    }
    if (text == nullptr) {
      request.prompt_tokens = token_ids(*tokens);
      return;
    }
    if (!text->is_string()) {
      fail("prompt", "a string", *text);
    }
    if (tokenizer_ == nullptr) {
      throw ConfigError("the model has no tokenizer; give \"prompt_token_ids\" and not \"prompt\"");
    }
    request.prompt = text->get<std::string>();
    request.prompt_tokens.push_back(static_cast<std::int32_t>(spec_.bos_token));
    const auto words = tokenizer_->encode(*request.prompt);
    request.prompt_tokens.insert(request.prompt_tokens.end(), words.begin(), words.end());
  }

  [[nodiscard]] std::vector<std::int32_t> token_ids(const json& list) const {
    if (!list.is_array() || list.empty()) {
      fail("prompt_token_ids", "a list of at least one token id", list);
    }
    std::vector<std::int32_t> tokens;
    tokens.reserve(list.size());
    for (const auto& id : list) {
      if (!id.is_number_integer() || !in_range<std::int64_t>(id, 0, spec_.vocab - 1)) {
        throw ConfigError(fmt::format("\"prompt_token_ids\"[{}] is {}; token ids go from 0 to {}",
                                      tokens.size(), model::describe_json(id), spec_.vocab - 1));
      }
      tokens.push_back(id.get<std::int32_t>());
    }
    return tokens;
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

  const RequestDefaults& defaults_;
  const model::ModelSpec& spec_;
  const model::Tokenizer* tokenizer_;
  json object_;
};

void strip_byte_order_mark(std::string& text) {
  if (text.starts_with("\xef\xbb\xbf")) {
    text.erase(0, 3);
  }
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

RequestList read_requests(std::istream& in, const std::string& name,
                          const RequestDefaults& defaults, const model::ModelSpec& spec,
                          const model::Tokenizer* tokenizer, OnError on_error, const Log& log) {
  RequestList list;
  LineReader reader(defaults, spec, tokenizer);
  std::unordered_map<std::string, std::int64_t> line_of_id;
  std::string text;
  for (std::int64_t line = 1; std::getline(in, text); ++line) {
    if (line == 1) {
      strip_byte_order_mark(text);
    }
    if (is_blank(text)) {
      continue;
    }
    try {
      auto request = reader.read(text);
      request.line = line;
      const auto [first, is_new] = line_of_id.emplace(request.id, line);
      if (!is_new) {
        throw ConfigError(fmt::format("id {} is that of line {} too; ids must differ",
                                      model::describe_json(request.id), first->second));
      }
      list.requests.push_back(std::move(request));
    } catch (const ConfigError& error) {
      const auto what = fmt::format("{}:{}: {}", name, line, error.what());
      if (on_error == OnError::stop) {
        throw ConfigError(what);
      }
      log.warning("{}; skipped", what);
      ++list.skipped;
    }
  }
  if (in.bad()) {
    throw IoError(fmt::format("cannot read {} to its end: {}", name, std::strerror(errno)));
  }
  return list;
}

RequestList read_requests(const std::string& path, const RequestDefaults& defaults,
                          const model::ModelSpec& spec, const model::Tokenizer* tokenizer,
                          OnError on_error, const Log& log) {
  if (path == "-") {
    return read_requests(std::cin, "standard input", defaults, spec, tokenizer, on_error, log);
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw ConfigError(
        fmt::format("cannot read prompts from {}: it is a folder; name a file", path));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw ConfigError(fmt::format("cannot read prompts from {}: {}; check --prompts", path,
                                  std::strerror(errno)));
  }
  return read_requests(in, path, defaults, spec, tokenizer, on_error, log);
}

}  // namespace stagecoach::job
