#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "job/lines.hpp"

namespace stagecoach::job {

/// One line of a JSON Lines file: a flat object. Every error is a ConfigError that says what is
/// wrong and what to do, without the place. A key that is null counts as left out.
class JsonLine {
 public:
  /// `example` is what such a line looks like, for messages.
  JsonLine(const std::string& text, std::string_view example);

  void refuse_unknown_keys(std::span<const std::string_view> known) const;

  /// nullptr when the key is missing or null.
  [[nodiscard]] const nlohmann::json* find(const char* key) const;
  /// Refuses the value of a key.
  [[noreturn]] static void fail(const char* key, std::string_view wanted,
                                const nlohmann::json& value);

  /// The value of "id", which must be there.
  [[nodiscard]] LineId id() const;
  /// `value`, which must be a string.
  [[nodiscard]] static const std::string& string(const char* key, const nlohmann::json& value);
  /// `list`, which must be one of at least one token id below `vocab`.
  [[nodiscard]] static std::vector<std::int32_t> token_ids(const char* key,
                                                           const nlohmann::json& list,
                                                           std::int64_t vocab);

  /// A whole number from `low` to `high`, or `fallback` when the key is left out.
  template <typename T>
  [[nodiscard]] T integer(const char* key, T low, T high, T fallback) const {
    const auto* value = find(key);
    if (value == nullptr) {
      return fallback;
    }
    if (!value->is_number_integer() || !in_range(*value, low, high)) {
      fail(key, fmt::format("a whole number from {} to {}", low, high), *value);
    }
    return value->get<T>();
  }

 private:
  template <typename T>
  static bool in_range(const nlohmann::json& value, T low, T high) {
    if (value.is_number_unsigned()) {
      const auto number = value.get<std::uint64_t>();
      return std::cmp_greater_equal(number, low) && std::cmp_less_equal(number, high);
    }
    const auto number = value.get<std::int64_t>();
    return std::cmp_greater_equal(number, low) && std::cmp_less_equal(number, high);
  }

  nlohmann::json object_;
};

}  // namespace stagecoach::job
