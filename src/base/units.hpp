#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stagecoach {

/// "12", "1.5GiB", "200MB", "64K": decimal suffixes K M G T (with or without B) are powers of 1000,
/// Ki Mi Gi Ti powers of 1024; case does not count. ConfigError names `flag` and the text
/// otherwise.
std::size_t parse_bytes(std::string_view text, std::string_view flag);

/// "1.50 GiB", three significant places, binary units.
std::string format_bytes(std::size_t bytes);

/// "1h 02m", "3m 20s", "4.2 s".
std::string format_seconds(double seconds);

}  // namespace stagecoach
