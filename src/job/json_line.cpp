#include "job/json_line.hpp"

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "model/json_error.hpp"
#include "model/json_fields.hpp"

namespace stagecoach::job {
namespace {

using nlohmann::json;

/// Refuses what no line has before it takes memory: repeated keys, and values below lists.
class ShapeGuard {
 public:
  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth >= 2) {
      throw ConfigError("lists and objects are nested too deeply; write one flat object");
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

json parse_object(const std::string& text, std::string_view example) {
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
  throw ConfigError(fmt::format("not a JSON object; write {}", example));
}

}  // namespace

JsonLine::JsonLine(const std::string& text, std::string_view example)
    : object_(parse_object(text, example)) {}

const json* JsonLine::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void JsonLine::fail(const char* key, std::string_view wanted, const json& value) {
  throw ConfigError(
      fmt::format("\"{}\" is {}; it must be {}", key, model::describe_json(value), wanted));
}

void JsonLine::refuse_unknown_keys(std::span<const std::string_view> known) const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      throw ConfigError(fmt::format("unknown key {}; known are {}", model::describe_json(key),
                                    fmt::join(known, ", ")));
    }
  }
}

LineId JsonLine::id() const {
  const auto* id = find("id");
  if (id == nullptr) {
    throw ConfigError("there is no \"id\"; give each line one of its own");
  }
  if (id->is_string()) {
    return {.text = id->get<std::string>()};
  }
  if (!id->is_number_integer()) {
    fail("id", "a string or a 64-bit whole number", *id);
  }
  return {.text = id->dump(), .is_number = true};
}

const std::string& JsonLine::string(const char* key, const json& value) {
  if (!value.is_string()) {
    fail(key, "a string", value);
  }
  return value.get_ref<const std::string&>();
}

std::vector<std::int32_t> JsonLine::token_ids(const char* key, const json& list,
                                              std::int64_t vocab) {
  if (!list.is_array() || list.empty()) {
    fail(key, "a list of at least one token id", list);
  }
  std::vector<std::int32_t> tokens;
  tokens.reserve(list.size());
  for (const auto& id : list) {
    if (!id.is_number_integer() || !in_range<std::int64_t>(id, 0, vocab - 1)) {
      throw ConfigError(fmt::format("\"{}\"[{}] is {}; token ids go from 0 to {}", key,
                                    tokens.size(), model::describe_json(id), vocab - 1));
    }
    tokens.push_back(id.get<std::int32_t>());
  }
  return tokens;
}

}  // namespace stagecoach::job
