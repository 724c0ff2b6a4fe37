#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace stagecoach::testing {

struct ProgramEnd {
  int exit_code = -1;  ///< 128 + signal if a signal ended it
  std::string out;     ///< standard output
  std::string err;     ///< standard error
};

/// A child process in a process group of its own; killed with all its children by the destructor.
class Program {
 public:
  explicit Program(const std::vector<std::string>& command);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  Program(Program&&) = delete;
  Program& operator=(Program&&) = delete;
  ~Program();

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  /// Waits for its end; nothing if it has not ended in time.
  [[nodiscard]] std::optional<ProgramEnd> wait(std::chrono::milliseconds at_most);

  /// The process below this one that is MPI rank `rank` of Open MPI, once there is one; -1 after
  /// ten seconds without.
  [[nodiscard]] pid_t find_rank(int rank) const;

 private:
  pid_t pid_ = -1;
  std::string out_path_;
  std::string err_path_;
};

/// Runs a command to its end; a test failure and exit code -1 if that takes more than two minutes.
ProgramEnd run_program(const std::vector<std::string>& command);

/// The start of a command line that runs `ranks` ranks on this machine, root or not.
std::vector<std::string> mpiexec(int ranks);

}  // namespace stagecoach::testing
