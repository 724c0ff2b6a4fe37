#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stagecoach::model {

enum class Utf8Kind {
  valid,      ///< one whole scalar value
  invalid,    ///< a maximal ill-formed subpart, to be replaced by one U+FFFD
  incomplete  ///< the text ends inside a scalar value that is well-formed so far
};

/// The unit that a text starts with, and how many bytes it takes (>= 1).
struct Utf8Unit {
  Utf8Kind kind;
  std::size_t size;
};

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";

/// Classifies the start of `bytes`, which must not be empty (Unicode 15, table 3-7).
Utf8Unit first_utf8_unit(std::string_view bytes) noexcept;

/// Offset of the first byte that is not part of well-formed UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view bytes) noexcept;

/// Appends `bytes` to `out` with every maximal ill-formed subpart replaced by U+FFFD. Returns how
/// many bytes were used: all of them but an incomplete end, which is left for the caller.
std::size_t append_valid_utf8(std::string& out, std::string_view bytes);

/// Appends the UTF-8 form of a scalar value.
void append_code_point(std::string& out, char32_t code_point);

/// The first scalar value of `bytes`, which must start with a unit of kind `valid`.
char32_t first_code_point(std::string_view bytes) noexcept;

}  // namespace stagecoach::model
