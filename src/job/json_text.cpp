#include "job/json_text.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace stagecoach::job {

std::string quote(const std::string& text) { return nlohmann::json(text).dump(); }

std::string format_float(float value) {
  if (!std::isfinite(value)) {
    return "null";
  }
  std::array<char, 64> buffer{};
  auto* end = std::to_chars(buffer.begin(), buffer.end(), value).ptr;
  double wide = 0;
  std::from_chars(buffer.begin(), end, wide);
  if (static_cast<float>(wide) != value) {
    // Nine digits lie far from the middle between two floats.
    end = std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::scientific, 8).ptr;
  }
  std::string text(buffer.begin(), end);
  // A whole number would be read as an integer, and "-0" lose its sign.
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string format_double(double value) { return nlohmann::json(value).dump(); }

}  // namespace stagecoach::job
