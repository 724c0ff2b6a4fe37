#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <istream>
#include <string>
#include <unordered_map>

#include "base/log.hpp"

namespace stagecoach::job {

/// What a bad line of an input does.
enum class OnError {
  stop,  ///< ends the job before it starts
  skip   ///< is a warning, and the job runs without it
};

/// An id as it came, and its text form.
struct LineId {
  std::string text;
  bool is_number = false;
};

/// Opens a file of the user's; ConfigError names it and its flag.
std::ifstream open_input(const std::string& path, const char* flag);

/// Hands every line that is not blank, with its number from 1 on, to `take`, which throws
/// ConfigError without the place. That becomes `name:line: what`, thrown or logged. Returns how
/// many lines were skipped. IoError when reading fails half-way.
std::int64_t read_lines(std::istream& in, const std::string& name, OnError on_error, const Log& log,
                        const std::function<void(const std::string&, std::int64_t)>& take);

/// Refuses ids that came before.
class UniqueIds {
 public:
  /// ConfigError when an earlier line has this id.
  void add(const std::string& id, std::int64_t line);

 private:
  std::unordered_map<std::string, std::int64_t> line_of_id_;
};

}  // namespace stagecoach::job
