#include "job/progress.hpp"

#include "base/units.hpp"

namespace stagecoach::job {
namespace {

constexpr auto kReportEvery = std::chrono::seconds(10);

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

double RunTotals::decode_tokens_per_second() const {
  const double after = seconds - prefill_seconds;
  return after > 0 ? static_cast<double>(generated_tokens - first_tokens) / after : 0;
}

Progress::Progress(const Log& log, std::int64_t requests) : log_(log), requests_(requests) {}

void Progress::add_generated_token(bool first) {
  ++totals_.generated_tokens;
  if (first) {
    ++totals_.first_tokens;
    totals_.prefill_seconds = seconds_between(start_, Clock::now());
  }
}

void Progress::maybe_report() {
  const auto now = Clock::now();
  if (now - last_report_ < kReportEvery) {
    return;
  }
  last_report_ = now;
  const double seconds = seconds_between(start_, now);
  const double finished = static_cast<double>(totals_.requests);
  const auto left =
      totals_.requests == 0
          ? std::string("unknown")
          : format_seconds(seconds * (static_cast<double>(requests_) - finished) / finished);
  log_.info("{} of {} requests, {:.1f} generated tokens/s, {:.1f} prompt tokens/s, {} left",
            totals_.requests, requests_, static_cast<double>(totals_.generated_tokens) / seconds,
            static_cast<double>(totals_.prompt_tokens) / seconds, left);
}

RunTotals Progress::finish() {
  totals_.seconds = seconds_between(start_, Clock::now());
  log_.info(
      "{} requests in {:.2f} s: {} prompt tokens, {} generated tokens, {:.2f} generated "
      "tokens/s",
      totals_.requests, totals_.seconds, totals_.prompt_tokens, totals_.generated_tokens,
      static_cast<double>(totals_.generated_tokens) / totals_.seconds);
  if (totals_.first_tokens > 0) {
    log_.info("every request had its first token after {:.2f} s; then {:.2f} tokens/s",
              totals_.prefill_seconds, totals_.decode_tokens_per_second());
  }
  return totals_;
}

}  // namespace stagecoach::job
