#include "cli/options.hpp"

#include <fmt/core.h>

#include <boost/program_options/errors.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/positional_options.hpp>
#include <charconv>
#include <map>
#include <sstream>
#include <utility>

namespace stagecoach::cli {
namespace {

constexpr const char* kConfig = "config";

int command_line_style() {
  using namespace po::command_line_style;
  return default_style & ~allow_guessing;
}

po::variables_map read_command_line(const po::options_description& described,
                                    const std::vector<std::string>& arguments) {
  po::variables_map values;
  po::store(po::command_line_parser(arguments)
                .options(described)
                .positional(po::positional_options_description())
                .style(command_line_style())
                .run(),
            values);
  return values;
}

/// The settings of an ini file as options; each is named with its file in errors.
po::parsed_options options_of(const std::map<std::string, std::string>& settings,
                              const std::string& path, const po::options_description& described) {
  po::parsed_options parsed(&described);
  for (const auto& [key, value] : settings) {
    const auto* option = described.find_nothrow(key, false);
    if (option == nullptr || key == kConfig || key == "help") {
      throw ConfigError(fmt::format("{}: there is no option called {}", path, key));
    }
    parsed.options.emplace_back(key, std::vector<std::string>{value});
  }
  return parsed;
}

// What the command line set stays; defaults give way (po::store sees to both).
std::vector<IniSection> add_config_file(po::variables_map& values,
                                        const po::options_description& described) {
  const auto path = values[kConfig].as<std::string>();
  auto document = read_ini_document(path);
  if (!document.sections.empty() && described.find_nothrow("stage-policy", false) == nullptr) {
    throw ConfigError(
        fmt::format("{} line {}: must be 'key = value'", path, document.sections.front().line));
  }
  try {
    po::store(options_of(document.settings, path, described), values);
  } catch (const po::error& error) {
    throw ConfigError(fmt::format("{}: {}", path, error.what()));
  }
  return std::move(document.sections);
}

std::set<std::string> names_set(const po::variables_map& values) {
  std::set<std::string> names;
  for (const auto& [name, value] : values) {
    if (!value.defaulted()) {
      names.insert(name);
    }
  }
  return names;
}

Options read_all(const std::string& command, const po::options_description& described,
                 const std::vector<std::string>& arguments) {
  try {
    auto values = read_command_line(described, arguments);
    auto settled = names_set(values);
    std::vector<IniSection> sections;
    if (values.count(kConfig) > 0 && values.count("help") == 0) {
      sections = add_config_file(values, described);
    }
    po::notify(values);
    return Options(std::move(values), std::move(settled), std::move(sections));
  } catch (const po::error& error) {
    throw ConfigError(
        fmt::format("{}: {}; see 'stagecoach {} --help'", command, error.what(), command));
  }
}

}  // namespace

std::int64_t Options::integer(const std::string& name, std::int64_t least,
                              std::int64_t most) const {
  const auto value = get<std::int64_t>(name);
  if (value < least || value > most) {
    throw ConfigError(fmt::format("--{} {}: must be from {} to {}", name, value, least, most));
  }
  return value;
}

void Options::exclude(const std::string& one, const std::string& other) const {
  if (given(one) && given(other)) {
    throw ConfigError(fmt::format("--{} and --{} exclude each other", one, other));
  }
}

void Options::require(const std::string& name) const {
  if (!has(name)) {
    throw ConfigError(fmt::format("--{} is missing", name));
  }
}

std::optional<Options> parse_options(const std::string& command, const std::string& usage,
                                     po::options_description described,
                                     const std::vector<std::string>& arguments) {
  described.add_options()("help,h", "print this and exit");
  auto options = read_all(command, described, arguments);
  if (options.has("help")) {
    std::ostringstream text;
    text << described;
    fmt::print("{}\n\n{}", usage, text.str());
    return std::nullopt;
  }
  return options;
}

std::uint64_t parse_unsigned(const std::string& text, const std::string& flag) {
  std::uint64_t value = 0;
  const auto* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || stop != end) {
    throw ConfigError(
        fmt::format("{} {}: must be a whole number from 0 to 18446744073709551615", flag, text));
  }
  return value;
}

std::vector<std::int64_t> parse_integers(const std::string& text, const std::string& flag) {
  std::vector<std::int64_t> values;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) {
    std::int64_t value = 0;
    const auto* end = item.data() + item.size();
    if (const auto [stop, code] = std::from_chars(item.data(), end, value);
        code != std::errc{} || stop != end) {
      throw ConfigError(fmt::format("--{} {}: must be whole numbers with commas", flag, text));
    }
    values.push_back(value);
  }
  return values;
}

}  // namespace stagecoach::cli
