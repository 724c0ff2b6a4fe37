#include "plan/measure_timing.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace stagecoach::plan {
namespace {

constexpr std::size_t kLeastRepetitions = 5;
constexpr double kAimedRepetitions = 9;
// A stream's queue holds them all, and what is tiny is long enough with so many.
constexpr double kMostPieces = 1000;

}  // namespace

double median(std::vector<double> values) {
  STAGECOACH_CHECK(!values.empty(), "the median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double seconds_of_a_piece(const TimedRun& run, double seconds) {
  const double warming = run(1);
  // The first piece finds cold caches; the second says better how long one takes.
  const double once = std::max(warming < seconds ? run(1) : warming, 1e-9);
  const auto pieces =
      static_cast<std::int64_t>(std::clamp(seconds / (kAimedRepetitions * once), 1.0, kMostPieces));
  std::vector<double> repetitions;
  for (double spent = 0; repetitions.size() < kLeastRepetitions || spent < seconds;) {
    const double taken = run(pieces);
    repetitions.push_back(taken / static_cast<double>(pieces));
    spent += std::max(taken, seconds * 1e-3);  // a clock that stands still ends too
  }
  return median(std::move(repetitions));
}

double rounded(double value) {
  // By way of text, so that it is the number that a file's few digits mean.
  return std::stod(fmt::format("{:.3e}", value));
}

double now_seconds() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

}  // namespace stagecoach::plan
