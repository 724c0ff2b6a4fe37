#include "plan/numbers.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

namespace stagecoach::plan {

std::optional<double> parse_number(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, number);
  if (code != std::errc{} || stop != end || !std::isfinite(number)) {
    return std::nullopt;
  }
  return number;
}

std::string format_number(double number) {
  constexpr double kPlain = 1e6;  // longer ones are easier to read with an exponent
  if (std::abs(number) < kPlain && number == std::trunc(number)) {
    return fmt::format("{:.0f}", number);
  }
  if (std::abs(number) >= 1e-3 && std::abs(number) < kPlain) {
    return fmt::format("{}", number);
  }
  std::array<char, 32> buffer{};
  const auto [end, code] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number,
                                         std::chars_format::scientific);
  const std::string text(buffer.data(), end);
  const auto exponent = text.find('e');
  if (code != std::errc{} || exponent == std::string::npos) {
    return fmt::format("{}", number);  // infinities and NaN, which no file has
  }
  // "1.24e+10" and "1e-05" as people write them.
  const bool negative = text[exponent + 1] == '-';
  const auto digits = text.find_first_not_of("+-0", exponent + 1);
  return text.substr(0, exponent + 1) + (negative ? "-" : "") +
         (digits == std::string::npos ? "0" : text.substr(digits));
}

}  // namespace stagecoach::plan
