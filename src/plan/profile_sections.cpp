#include "plan/profile_sections.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"
#include "plan/numbers.hpp"

namespace stagecoach::plan {
namespace {

/// "14.5GiB" or "1.5TB" where few digits say it exactly, else the bytes.
std::string exact_bytes(std::size_t bytes) {
  constexpr std::array<std::pair<const char*, double>, 6> kUnits{
      {{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}}};
  constexpr std::size_t kLongest = 6;
  for (const auto& [unit, factor] : kUnits) {
    const auto number = format_number(static_cast<double>(bytes) / factor);
    auto text = number + unit;
    if (static_cast<double>(bytes) >= factor && number.size() <= kLongest &&
        parse_bytes(text, "size") == bytes) {
      return text;
    }
  }
  return fmt::format("{}", bytes);
}

/// As the ini format gives it back: no line ends, comments or outer blanks.
std::string plain_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((text[i] == '#' || text[i] == ';') && (i == 0 || blank(text[i - 1]))) {
      text[i] = ',';
    }
  }
  text.erase(std::find_if_not(text.rbegin(), text.rend(), blank).base(), text.end());
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), blank));
  return text;
}

}  // namespace

ProfileReader::ProfileReader(const std::string& text, std::string where)
    : where_(std::move(where)) {
  for (auto& [name, line, settings] : parse_ini_sections(text, where_)) {
    if (line == 0 && !settings.empty()) {
      throw ConfigError(fmt::format(
          "{}: settings before the first [section]; a node profile begins with [node]", where_));
    }
    if (line != 0 && !sections_.emplace(name, Section{std::move(settings), {}}).second) {
      throw ConfigError(fmt::format("{} line {}: [{}] comes twice; put its settings together",
                                    where_, line, name));
    }
  }
}

void ProfileReader::section(const std::string& name, std::string_view comment) {
  if (!optional_section(name, comment, true)) {
    throw ConfigError(fmt::format(
        "{}: there is no section [{}]; add it, or measure the node with 'stagecoach profile'",
        where_, name));
  }
}

bool ProfileReader::optional_section(const std::string& name, std::string_view, bool) {
  asked_.push_back(name);
  name_ = name;
  const auto found = sections_.find(name);
  current_ = found == sections_.end() ? nullptr : &found->second;
  return current_ != nullptr;
}

bool ProfileReader::has(const std::string& key) {
  current_->known.insert(key);
  return current_->settings.contains(key);
}

std::vector<std::string> ProfileReader::other_keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : current_->settings) {
    if (!current_->known.contains(key)) {
      keys.push_back(key);
    }
  }
  return keys;
}

std::string ProfileReader::place(const std::string& key) const {
  const auto found = current_->settings.find(key);
  return found == current_->settings.end()
             ? fmt::format("{} [{}] {}", where_, name_, key)
             : fmt::format("{} [{}] {} = {}", where_, name_, key, found->second);
}

void ProfileReader::fail(const std::string& key, const std::string& what) const {
  throw ConfigError(fmt::format("{}: {}", place(key), what));
}

const std::string& ProfileReader::value_of(const std::string& key) {
  current_->known.insert(key);
  const auto found = current_->settings.find(key);
  if (found == current_->settings.end()) {
    fail(key, "this key is missing; add it, or measure the node with 'stagecoach profile'");
  }
  return found->second;
}

double ProfileReader::checked(const std::string& key, double value, const std::string& shown,
                              const Limit& limit) const {
  if (!(value >= limit.least && value <= limit.most)) {
    fail(key, fmt::format("{} must be {} to {} {}; correct it, or measure the node again", shown,
                          format_number(limit.least), format_number(limit.most), limit.unit));
  }
  return value;
}

void ProfileReader::text(const std::string& key, std::string& value) {
  if (has(key)) {
    value = value_of(key);
  }
}

void ProfileReader::flag(const std::string& key, bool& value) {
  const auto& text = value_of(key);
  if (text != "true" && text != "false") {
    fail(key, "must be true or false");
  }
  value = text == "true";
}

void ProfileReader::count(const std::string& key, int& value, const Limit& limit) {
  const auto& text = value_of(key);
  const char* end = text.data() + text.size();
  std::int64_t number = 0;
  if (const auto [stop, code] = std::from_chars(text.data(), end, number);
      code != std::errc{} || stop != end) {
    fail(key, fmt::format("is no whole number; write the {}", limit.unit));
  }
  value = static_cast<int>(checked(key, static_cast<double>(number), "it", limit));
}

void ProfileReader::number(const std::string& key, double& value, const Limit& limit) {
  const auto parsed = parse_number(value_of(key));
  if (!parsed) {
    fail(key, fmt::format("is no number; write the {} like 250 or 2.5e2", limit.unit));
  }
  value = checked(key, *parsed, "it", limit);
}

void ProfileReader::bytes(const std::string& key, std::size_t& value, const Limit& limit) {
  value = parse_bytes(value_of(key), fmt::format("{} [{}] {} =", where_, name_, key));
  checked(key, static_cast<double>(value), "it", limit);
}

void ProfileReader::curve(const std::string& key, Curve& value, const Limit& sizes,
                          const Limit& rates) {
  const auto& text = value_of(key);
  value = parse_curve(text, place(key));
  for (const auto& [size, rate] : value.points()) {
    checked(key, size, "size " + format_number(size), sizes);
    checked(key, rate, "rate " + format_number(rate), rates);
  }
}

void ProfileReader::finish() const {
  for (const auto& [name, section] : sections_) {
    if (std::find(asked_.begin(), asked_.end(), name) == asked_.end()) {
      throw ConfigError(fmt::format("{}: unknown section [{}]; a node profile has {}", where_, name,
                                    fmt::join(asked_, ", ")));
    }
    for (const auto& [key, value] : section.settings) {
      if (!section.known.contains(key)) {
        throw ConfigError(fmt::format("{} [{}] {} = {}: unknown key; the section has {}", where_,
                                      name, key, value, fmt::join(section.known, ", ")));
      }
    }
  }
}

void ProfileWriter::section(const std::string& name, std::string_view text) {
  text_ += fmt::format("{}[{}]\n", text_.empty() ? "" : "\n", name);
  comment(text);
}

bool ProfileWriter::optional_section(const std::string& name, std::string_view text, bool wanted) {
  if (wanted) {
    section(name, text);
  }
  return wanted;
}

void ProfileWriter::comment(std::string_view text) {
  if (!text.empty()) {
    text_ += fmt::format("# {}\n", text);
  }
}

void ProfileWriter::line(const std::string& key, const std::string& value) {
  text_ += fmt::format("{} = {}\n", key, value);
}

void ProfileWriter::text(const std::string& key, const std::string& value) {
  if (const auto plain = plain_line(value); !plain.empty()) {
    line(key, plain);
  }
}

void ProfileWriter::flag(const std::string& key, bool value) {
  line(key, value ? "true" : "false");
}

void ProfileWriter::count(const std::string& key, int value, const Limit&) {
  line(key, fmt::format("{}", value));
}

void ProfileWriter::number(const std::string& key, double value, const Limit&) {
  line(key, format_number(value));
}

void ProfileWriter::bytes(const std::string& key, std::size_t value, const Limit&) {
  line(key, exact_bytes(value));
}

void ProfileWriter::curve(const std::string& key, const Curve& value, const Limit&, const Limit&) {
  line(key, format_curve(value));
}

}  // namespace stagecoach::plan
