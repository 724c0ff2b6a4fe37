#pragma once

#include <chrono>
#include <cstdint>

#include "base/log.hpp"

namespace stagecoach::job {

/// Counts of a finished run.
struct RunTotals {
  std::int64_t requests = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t generated_tokens = 0;
  double seconds = 0;
};

/// Tells now and then how far the job is, and at the end what it did.
class Progress {
 public:
  Progress(const Log& log, std::int64_t requests);

  void add_prompt_tokens(std::int64_t tokens) { totals_.prompt_tokens += tokens; }
  void add_generated_token() { ++totals_.generated_tokens; }
  void add_finished_request() { ++totals_.requests; }

  /// Logs a line if the last one is ten seconds old.
  void maybe_report();
  /// Logs the totals and returns them.
  RunTotals finish();

 private:
  using Clock = std::chrono::steady_clock;

  const Log& log_;
  std::int64_t requests_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_report_ = start_;
  RunTotals totals_;
};

}  // namespace stagecoach::job
