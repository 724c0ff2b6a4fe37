#pragma once

#include <string>

namespace stagecoach::job {

/// A text as JSON, in quotes.
std::string quote(const std::string& text);

/// The shortest decimal that a reader gets the same float from, even one that reads it as a double
/// first and rounds twice. "null" if it is not finite.
std::string format_float(float value);

/// The shortest decimal that reads back to the same double; "null" if it is not finite.
std::string format_double(double value);

}  // namespace stagecoach::job
