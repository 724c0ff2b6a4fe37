#pragma once

#include <map>
#include <string>
#include <vector>

namespace stagecoach {

/// Reads "key = value" lines. '#' and ';' start a comment at the beginning of a line or after a
/// blank; blanks around keys and values do not count. ConfigError naming file and line: a line
/// without '=', an empty key, a [section], a key that comes twice, or a file that cannot be read.
std::map<std::string, std::string> read_ini_file(const std::string& path);

/// The same for text in memory; `where` stands in the errors.
std::map<std::string, std::string> parse_ini(const std::string& text, const std::string& where);

/// Settings under one [name] line; those of a file without such lines have an empty name.
struct IniSection {
  std::string name;
  int line = 0;  ///< of the [name]
  std::map<std::string, std::string> settings;
};

/// The same for a file that may have sections, in their order; at least one.
std::vector<IniSection> read_ini_sections(const std::string& path);
std::vector<IniSection> parse_ini_sections(const std::string& text, const std::string& where);

/// Settings of the whole, and sections after them; there may be none of either.
struct IniDocument {
  std::map<std::string, std::string> settings;
  std::vector<IniSection> sections;
};
IniDocument read_ini_document(const std::string& path);

}  // namespace stagecoach
