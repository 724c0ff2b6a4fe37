#include "plan/measure_timing.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace stagecoach::plan {
namespace {

/// Work of a known length a piece on a clock that only it moves.
struct Clock {
  std::vector<double> seconds_of_pieces;  ///< of each run, in turns
  std::vector<std::int64_t> runs;

  double run(std::int64_t pieces) {
    const double each = seconds_of_pieces[runs.size() % seconds_of_pieces.size()];
    runs.push_back(pieces);
    return each * static_cast<double>(pieces);
  }
  double measure(double seconds) {
    return seconds_of_a_piece([this](std::int64_t pieces) { return run(pieces); }, seconds);
  }
};

TEST(MeasureTiming, MedianIsTheMiddleOrTheUpperOfTwo) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({4, 1, 3, 2}), 3);
  EXPECT_THROW(median({}), InternalError);
}

TEST(MeasureTiming, WhatWarmsUpDoesNotCount) {
  Clock clock{{50, 1, 2, 3, 4, 5}, {}};
  EXPECT_EQ(clock.measure(10), 3);
}

TEST(MeasureTiming, OneSlowRepetitionIsNoMatter) {
  Clock clock{{1, 1, 1, 100, 1, 1, 1}, {}};
  EXPECT_EQ(clock.measure(2), 1);
}

TEST(MeasureTiming, LongWorkIsRepeatedFiveTimes) {
  Clock clock{{7}, {}};
  EXPECT_EQ(clock.measure(0.5), 7);
  EXPECT_EQ(clock.runs, (std::vector<std::int64_t>{1, 1, 1, 1, 1, 1}));
}

TEST(MeasureTiming, ShortWorkIsDoneInRowsThatTakeTheTimeTogether) {
  Clock clock{{1.0 / 1024}, {}};
  EXPECT_EQ(clock.measure(9.0 / 8), 1.0 / 1024);
  std::int64_t pieces = 0;
  for (const auto run : clock.runs) {
    pieces += run;
  }
  EXPECT_EQ(clock.runs.back(), 128);  // a ninth of the time
  EXPECT_EQ(pieces, 9 * 128 + 2);
}

TEST(MeasureTiming, AQueueHoldsAllPiecesOfARow) {
  Clock clock{{1e-9}, {}};
  EXPECT_NEAR(clock.measure(1e-4), 1e-9, 1e-15);
  EXPECT_EQ(clock.runs.back(), 1000);
}

TEST(MeasureTiming, AClockThatStandsStillEnds) {
  Clock clock{{0}, {}};
  EXPECT_EQ(clock.measure(1), 0);
  EXPECT_LE(clock.runs.size(), 1100u);
}

TEST(MeasureTiming, RoundsToFourDigits) {
  EXPECT_EQ(rounded(12345678), 1.235e7);
  EXPECT_EQ(rounded(1.99996e-6), 2e-6);
  EXPECT_EQ(rounded(0), 0);
}

}  // namespace
}  // namespace stagecoach::plan
