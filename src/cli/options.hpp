#pragma once

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <boost/program_options/variables_map.hpp>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/ini_file.hpp"

namespace stagecoach::cli {

namespace po = boost::program_options;

/// The options of one subcommand after the command line and the ini file were read. Option values
/// have the types of the description; whole numbers are described as std::int64_t.
class Options {
 public:
  /// `settled`: names that the command line set; `sections`: of the ini file.
  explicit Options(po::variables_map values, std::set<std::string> settled = {},
                   std::vector<IniSection> sections = {})
      : values_(std::move(values)), settled_(std::move(settled)), sections_(std::move(sections)) {}

  /// Set by the user or by a default.
  [[nodiscard]] bool has(const std::string& name) const { return values_.count(name) > 0; }
  /// Set by the user.
  [[nodiscard]] bool given(const std::string& name) const {
    return has(name) && !values_[name].defaulted();
  }
  /// Set on the command line, not by the ini file.
  [[nodiscard]] bool on_command_line(const std::string& name) const {
    return settled_.count(name) > 0;
  }
  /// [sections] of the ini file that --config names, for who has settings a stage.
  [[nodiscard]] const std::vector<IniSection>& sections() const { return sections_; }
  /// ConfigError if it is not set.
  template <typename T>
  [[nodiscard]] const T& get(const std::string& name) const {
    require(name);
    return values_[name].as<T>();
  }
  [[nodiscard]] const std::string& text(const std::string& name) const {
    return get<std::string>(name);
  }
  [[nodiscard]] bool flag(const std::string& name) const { return has(name) && get<bool>(name); }
  /// ConfigError unless `least` <= value <= `most`.
  [[nodiscard]] std::int64_t integer(const std::string& name, std::int64_t least,
                                     std::int64_t most) const;
  /// ConfigError naming both when both were given.
  void exclude(const std::string& one, const std::string& other) const;

 private:
  void require(const std::string& name) const;

  po::variables_map values_;
  std::set<std::string> settled_;
  std::vector<IniSection> sections_;
};

/// Reads `arguments` by `described`, to which it adds --help. When `described` has --config and the
/// user gives it, that ini file's keys are options too; the command line wins. The file may have
/// sections where there is the option --stage-policy. Prints `usage` and
/// the options and returns nothing if --help is among the arguments. What does not fit is a
/// ConfigError: unknown or abbreviated options, options given twice, values of a wrong type, stray
/// words. `usage` is one or more lines; the first is "usage: stagecoach <command> ...".
std::optional<Options> parse_options(const std::string& command, const std::string& usage,
                                     po::options_description described,
                                     const std::vector<std::string>& arguments);

/// A number from 0 to 2^64 - 1; ConfigError names `flag`.
std::uint64_t parse_unsigned(const std::string& text, const std::string& flag);

/// Whole numbers with commas between, "3,3,2"; ConfigError names `--flag`.
std::vector<std::int64_t> parse_integers(const std::string& text, const std::string& flag);

}  // namespace stagecoach::cli
