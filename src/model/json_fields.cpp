#include "model/json_fields.hpp"

#include <limits>

#include "base/error.hpp"

namespace stagecoach::model {

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw FormatError(fmt::format("{}: no valid JSON at byte {}", where, error.byte));
  } catch (const nlohmann::json::exception&) {
    throw FormatError(fmt::format("{}: no valid JSON: a number is out of range", where));
  }
}

std::string describe_json(const nlohmann::json& value) {
  constexpr std::size_t kLongest = 60;
  auto text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kLongest) {
    text = text.substr(0, kLongest) + "...";
  }
  return text;
}

JsonFields::JsonFields(std::string_view text, std::string where)
    : where_(std::move(where)), object_(parse_json(text, where_)) {
  if (!object_.is_object()) {
    throw FormatError(fmt::format("{}: must be a JSON object, is {}", where_, object_.type_name()));
  }
}

const nlohmann::json* JsonFields::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const nlohmann::json& JsonFields::require(const char* key) const {
  const auto* value = find(key);
  if (value == nullptr) {
    throw FormatError(fmt::format("{}: key \"{}\" is missing", where_, key));
  }
  return *value;
}

void JsonFields::fail_type(const char* key, const char* wanted) const {
  throw FormatError(fmt::format("{}: key \"{}\" must be {}, is {}", where_, key, wanted,
                                describe_json(require(key))));
}

std::int64_t JsonFields::integer(const char* key) const {
  const auto& value = require(key);
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<std::uint64_t>() > kMost)) {
    fail_type(key, "an integer");
  }
  return value.get<std::int64_t>();
}

std::int64_t JsonFields::integer_or(const char* key, std::int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double JsonFields::number(const char* key) const {
  const auto& value = require(key);
  if (!value.is_number()) {
    fail_type(key, "a number");
  }
  return value.get<double>();
}

bool JsonFields::boolean(const char* key) const {
  const auto& value = require(key);
  if (!value.is_boolean()) {
    fail_type(key, "true or false");
  }
  return value.get<bool>();
}

bool JsonFields::boolean_or(const char* key, bool fallback) const {
  return has(key) ? boolean(key) : fallback;
}

std::string JsonFields::text(const char* key) const {
  const auto& value = require(key);
  if (!value.is_string()) {
    fail_type(key, "a string");
  }
  return value.get<std::string>();
}

std::string JsonFields::text_or(const char* key, const std::string& fallback) const {
  return has(key) ? text(key) : fallback;
}

}  // namespace stagecoach::model
