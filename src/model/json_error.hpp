#pragma once

#include <string>
#include <string_view>

namespace stagecoach::model {

/// What the JSON library says about a text that it could not parse, as part of one line: without
/// its prefix, in valid UTF-8, and short however long the offending token is.
std::string describe_json_error(std::string_view what);

}  // namespace stagecoach::model
