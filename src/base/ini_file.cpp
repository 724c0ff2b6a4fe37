#include "base/ini_file.hpp"

#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"

namespace stagecoach {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string_view without_comment(std::string_view line) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool may_start = i == 0 || kBlanks.find(line[i - 1]) != std::string_view::npos;
    if (may_start && (line[i] == '#' || line[i] == ';')) {
      return line.substr(0, i);
    }
  }
  return line;
}

std::string read_existing(const std::string& path) {
  if (std::error_code ignored; !std::filesystem::exists(path, ignored)) {
    throw ConfigError(fmt::format("there is no file {}", path));
  }
  return read_text_file(path);
}

/// What comes before the first [name] line, even if it is nothing, then each section.
std::vector<IniSection> parse_lines(const std::string& text, const std::string& where) {
  std::vector<IniSection> sections(1);
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const auto content = trimmed(without_comment(line));
    if (content.empty()) {
      continue;
    }
    if (content.front() == '[' && content.back() == ']') {
      sections.push_back({std::string(trimmed(content.substr(1, content.size() - 2))), number, {}});
      continue;
    }
    const auto equals = content.find('=');
    const std::string key(trimmed(content.substr(0, equals)));
    if (equals == std::string_view::npos || key.empty() || key.front() == '[') {
      throw ConfigError(fmt::format("{} line {}: must be 'key = value'", where, number));
    }
    if (!sections.back().settings.emplace(key, trimmed(content.substr(equals + 1))).second) {
      throw ConfigError(fmt::format("{} line {}: {} was set before", where, number, key));
    }
  }
  return sections;
}

}  // namespace

std::vector<IniSection> parse_ini_sections(const std::string& text, const std::string& where) {
  auto sections = parse_lines(text, where);
  if (sections.size() > 1 && sections.front().settings.empty()) {
    sections.erase(sections.begin());
  } else if (sections.size() > 1) {
    throw ConfigError(
        fmt::format("{}: settings before the first [section] belong to no section", where));
  }
  return sections;
}

std::map<std::string, std::string> parse_ini(const std::string& text, const std::string& where) {
  auto sections = parse_lines(text, where);
  if (sections.size() > 1) {
    throw ConfigError(fmt::format("{} line {}: must be 'key = value'", where, sections[1].line));
  }
  return std::move(sections.front().settings);
}

std::map<std::string, std::string> read_ini_file(const std::string& path) {
  return parse_ini(read_existing(path), path);
}

IniDocument read_ini_document(const std::string& path) {
  auto sections = parse_lines(read_existing(path), path);
  IniDocument document{std::move(sections.front().settings), {}};
  sections.erase(sections.begin());
  document.sections = std::move(sections);
  return document;
}

std::vector<IniSection> read_ini_sections(const std::string& path) {
  return parse_ini_sections(read_existing(path), path);
}

}  // namespace stagecoach
