#include "base/units.hpp"

#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.hpp"

namespace stagecoach {

std::size_t parse_bytes(std::string_view text, std::string_view flag) {
  const auto fail = [&]() -> std::size_t {
    throw ConfigError(
        fmt::format("{} {}: not a size; write bytes or a unit, like 16GiB or 500MB", flag, text));
  };
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) {
    return fail();
  }
  std::string unit;
  for (const char* c = rest; c != text.data() + text.size(); ++c) {
    unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  }
  if (!unit.empty() && unit.back() == 'b') {
    unit.pop_back();
  }
  double factor = 1;
  if (!unit.empty()) {
    const auto power = std::string_view("kmgt").find(unit[0]);
    const bool binary = unit.size() == 2 && unit[1] == 'i';
    if (power == std::string_view::npos || (unit.size() != 1 && !binary)) {
      return fail();
    }
    factor = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  const double bytes = std::floor(number * factor);
  if (bytes >= 0x1p63) {
    return fail();
  }
  return static_cast<std::size_t>(bytes);
}

std::string format_bytes(std::size_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  const int decimals = unit == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds < 59.95) {
    return fmt::format("{:.1f} s", seconds);
  }
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) {
    return fmt::format("{}m {:02d}s", whole / 60, whole % 60);
  }
  return fmt::format("{}h {:02d}m", whole / 3600, whole % 3600 / 60);
}

}  // namespace stagecoach
