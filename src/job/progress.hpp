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
  std::int64_t first_tokens = 0;  ///< requests that have generated some
  double seconds = 0;
  double prefill_seconds = 0;  ///< until the last of the first tokens

  /// Tokens after the first ones, by the time after prefill; 0 where there is none of it.
  [[nodiscard]] double decode_tokens_per_second() const;
};

/// Tells now and then how far the job is, and at the end what it did.
class Progress {
 public:
  Progress(const Log& log, std::int64_t requests);

  void add_prompt_tokens(std::int64_t tokens) { totals_.prompt_tokens += tokens; }
  /// `first`: of its request.
  void add_generated_token(bool first);
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
