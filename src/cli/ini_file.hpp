#pragma once

#include <map>
#include <string>

namespace stagecoach::cli {

/// Reads "key = value" lines. '#' and ';' start a comment at the beginning of a line or after a
/// blank; blanks around keys and values do not count. ConfigError naming file and line: a line
/// without '=', an empty key, a [section], a key that comes twice, or a file that cannot be read.
std::map<std::string, std::string> read_ini_file(const std::string& path);

/// The same for text in memory; `where` stands in the errors.
std::map<std::string, std::string> parse_ini(const std::string& text, const std::string& where);

}  // namespace stagecoach::cli
