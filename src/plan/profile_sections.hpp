#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/ini_file.hpp"
#include "plan/curve.hpp"

namespace stagecoach::plan {

/// What a number of a profile may be. The most is beyond any machine of this decade, so that a
/// figure in the wrong unit is refused.
struct Limit {
  const char* unit = "";
  double least = 0;
  double most = 0;
};

/// Reads the sections of a profile, one after another. Errors are ConfigErrors `where [section]
/// key = value: what; what to do`. Each function takes a value of the section by its key; what is
/// optional keeps its value when it is not there. ProfileWriter has the same functions, so that one
/// list of keys is both read and written.
class ProfileReader {
 public:
  static constexpr bool kReads = true;

  ProfileReader(const std::string& text, std::string where);

  /// The section that the next calls are about; it must be there. `comment` is for writing.
  void section(const std::string& name, std::string_view comment);
  /// The same where it need not be; whether it is.
  bool optional_section(const std::string& name, std::string_view comment, bool);
  void comment(std::string_view) {}

  void text(const std::string& key, std::string& value);  // optional
  void flag(const std::string& key, bool& value);
  void count(const std::string& key, int& value, const Limit& limit);
  void number(const std::string& key, double& value, const Limit& limit);
  void bytes(const std::string& key, std::size_t& value, const Limit& limit);
  void curve(const std::string& key, Curve& value, const Limit& sizes, const Limit& rates);

  /// Whether the section has an optional key.
  bool has(const std::string& key);
  /// The keys of the section that nothing has asked for yet.
  [[nodiscard]] std::vector<std::string> other_keys() const;
  /// ConfigError about the section, or a key of it.
  [[noreturn]] void fail(const std::string& key, const std::string& what) const;

  /// ConfigError if there is a section or a key that nothing asked for.
  void finish() const;

 private:
  struct Section {
    std::map<std::string, std::string> settings;
    std::set<std::string> known;  ///< keys that were asked for
  };

  const std::string& value_of(const std::string& key);
  [[nodiscard]] std::string place(const std::string& key) const;
  double checked(const std::string& key, double value, const std::string& shown,
                 const Limit& limit) const;

  std::string where_;
  std::map<std::string, Section> sections_;
  std::vector<std::string> asked_;  ///< names of sections, in their order
  std::string name_;
  Section* current_ = nullptr;
};

/// Writes them. Values are not checked.
class ProfileWriter {
 public:
  static constexpr bool kReads = false;

  void section(const std::string& name, std::string_view comment);
  /// Writes it if `wanted`; returns that.
  bool optional_section(const std::string& name, std::string_view comment, bool wanted);
  void comment(std::string_view text);

  /// On one line and without what the ini format takes for a comment; not at all if empty.
  void text(const std::string& key, const std::string& value);
  void flag(const std::string& key, bool value);
  void count(const std::string& key, int value, const Limit&);
  void number(const std::string& key, double value, const Limit&);
  void bytes(const std::string& key, std::size_t value, const Limit&);
  void curve(const std::string& key, const Curve& value, const Limit& sizes, const Limit& rates);

  [[nodiscard]] const std::string& written() const { return text_; }

 private:
  void line(const std::string& key, const std::string& value);

  std::string text_;
};

}  // namespace stagecoach::plan
