#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/transport.hpp"

namespace stagecoach::job {

/// Every rank knows that the job cannot go on, and ends in good order with the same exit code. The
/// message is rank 0's to print.
class JobRefused : public Error {
 public:
  JobRefused(const std::string& message, int exit_code, bool speaks)
      : Error(message), exit_code_(exit_code), speaks_(speaks) {}
  [[nodiscard]] int exit_code() const noexcept { return exit_code_; }
  /// True on the one rank that is to print the message.
  [[nodiscard]] bool speaks() const noexcept { return speaks_; }

 private:
  int exit_code_;
  bool speaks_;
};

/// Runs `work` on every rank that calls (all must), waits for all, and throws JobRefused on every
/// rank if it failed on any: with the lowest such rank's message, and its name where it is not
/// alone. Failures of the transport, and JobAborted, pass through.
void agree(comm::Transport& transport, const std::string& what, const std::function<void()>& work);

/// A name and a value that must be the same on all ranks.
struct Fact {
  std::string name;
  std::string value;
};

/// Throws JobRefused on every rank, naming the first fact, rank and both values that differ from
/// rank 0's.
void agree_on(comm::Transport& transport, const std::vector<Fact>& facts);

}  // namespace stagecoach::job
