#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace stagecoach::plan {

/// Runs so many pieces of work in a row and returns the seconds that they took together.
using TimedRun = std::function<double(std::int64_t pieces)>;

/// The upper one where their number is even; InternalError of none.
double median(std::vector<double> values);

/// Seconds of one piece of work: the median of repetitions that take about `seconds` in all, five
/// or more of them. Each has as many pieces as make its length a matter of the work and not of the
/// clock. What comes before the first repetition warms up and does not count.
double seconds_of_a_piece(const TimedRun& run, double seconds);

/// With four digits: what is behind them changes from run to run.
double rounded(double value);

/// The seconds since the program's clock began.
double now_seconds();

}  // namespace stagecoach::plan
