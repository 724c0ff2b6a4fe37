#include "model/utf8.hpp"

#include <cstdint>

namespace stagecoach::model {
namespace {

/// What may follow a lead byte: the length of the whole and the bounds of its second byte.
struct Lead {
  std::size_t size;
  std::uint8_t second_min;
  std::uint8_t second_max;
};

std::uint8_t byte_at(std::string_view bytes, std::size_t i) noexcept {
  return static_cast<std::uint8_t>(bytes[i]);
}

Lead lead_of(std::uint8_t byte) noexcept {
  if (byte >= 0xc2 && byte <= 0xdf) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte >= 0xe1 && byte <= 0xef) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte >= 0xf1 && byte <= 0xf3) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

}  // namespace

Utf8Unit first_utf8_unit(std::string_view bytes) noexcept {
  const auto first = byte_at(bytes, 0);
  if (first < 0x80) {
    return {Utf8Kind::valid, 1};
  }
  const auto lead = lead_of(first);
  if (lead.size == 0) {
    return {Utf8Kind::invalid, 1};
  }
  for (std::size_t i = 1; i < lead.size; ++i) {
    if (i == bytes.size()) {
      return {Utf8Kind::incomplete, i};
    }
    const auto byte = byte_at(bytes, i);
    const bool fits =
        i == 1 ? byte >= lead.second_min && byte <= lead.second_max : byte >= 0x80 && byte <= 0xbf;
    if (!fits) {
      return {Utf8Kind::invalid, i};
    }
  }
  return {Utf8Kind::valid, lead.size};
}

std::size_t find_invalid_utf8(std::string_view bytes) noexcept {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const auto unit = first_utf8_unit(bytes.substr(at));
    if (unit.kind != Utf8Kind::valid) {
      return at;
    }
    at += unit.size;
  }
  return std::string_view::npos;
}

std::size_t append_valid_utf8(std::string& out, std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const auto unit = first_utf8_unit(bytes.substr(at));
    if (unit.kind == Utf8Kind::incomplete) {
      break;
    }
    out += unit.kind == Utf8Kind::valid ? bytes.substr(at, unit.size) : kReplacementCharacter;
    at += unit.size;
  }
  return at;
}

void append_code_point(std::string& out, char32_t code_point) {
  const auto continuation = [&](unsigned shift) {
    out += static_cast<char>(0x80u | ((code_point >> shift) & 0x3fu));
  };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xc0u | (code_point >> 6));
    continuation(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xe0u | (code_point >> 12));
    continuation(6);
    continuation(0);
  } else {
    out += static_cast<char>(0xf0u | (code_point >> 18));
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

char32_t first_code_point(std::string_view bytes) noexcept {
  const auto size = first_utf8_unit(bytes).size;
  const char32_t first = byte_at(bytes, 0);
  // A lead byte of n bytes carries 7 - n bits, a lone byte 7.
  char32_t value = size == 1 ? first : first & (0xffu >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    value = (value << 6) | (byte_at(bytes, i) & 0x3fu);
  }
  return value;
}

}  // namespace stagecoach::model
