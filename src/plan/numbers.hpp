#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace stagecoach::plan {

/// The finite number that all of `text` says, if it is one.
std::optional<double> parse_number(std::string_view text);
/// The shortest text that parse_number reads back to the same number: "16", "1.24e10", "1e-5".
std::string format_number(double number);

}  // namespace stagecoach::plan
