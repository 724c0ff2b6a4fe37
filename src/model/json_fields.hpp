#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace stagecoach::model {

/// Parses JSON; a FormatError names `where` and what is wrong at which byte.
nlohmann::json parse_json(std::string_view text, const std::string& where);

/// A value as it is written, cut to one short line, for error messages.
std::string describe_json(const nlohmann::json& value);

/// The keys of one JSON object, with types checked. Every error is a FormatError that names
/// `where`, the key and the value. A key that is null counts as missing.
class JsonFields {
 public:
  /// Throws FormatError if `text` is no JSON object.
  JsonFields(std::string_view text, std::string where);

  [[nodiscard]] const std::string& where() const noexcept { return where_; }
  [[nodiscard]] bool has(const char* key) const { return find(key) != nullptr; }
  [[nodiscard]] const nlohmann::json& require(const char* key) const;

  [[nodiscard]] std::int64_t integer(const char* key) const;
  [[nodiscard]] std::int64_t integer_or(const char* key, std::int64_t fallback) const;
  [[nodiscard]] double number(const char* key) const;
  [[nodiscard]] bool boolean(const char* key) const;
  [[nodiscard]] bool boolean_or(const char* key, bool fallback) const;
  [[nodiscard]] std::string text(const char* key) const;
  [[nodiscard]] std::string text_or(const char* key, const std::string& fallback) const;

 private:
  [[nodiscard]] const nlohmann::json* find(const char* key) const;
  [[noreturn]] void fail_type(const char* key, const char* wanted) const;

  std::string where_;
  nlohmann::json object_;
};

}  // namespace stagecoach::model
