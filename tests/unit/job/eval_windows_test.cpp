#include "job/eval_windows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace stagecoach::job {
namespace {

using ::testing::ElementsAre;
using Tokens = std::vector<std::int32_t>;

constexpr std::int32_t kPrefix = 1000;

/// Tokens that are their own positions.
Tokens count_up(std::int64_t size) {
  Tokens tokens(static_cast<std::size_t>(size));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

Tokens span_of(std::int32_t first, std::int32_t last) {
  Tokens tokens(static_cast<std::size_t>(last - first + 1));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

ScoredTokens first_window(std::int32_t last) {
  auto window = ScoredTokens{.tokens = span_of(0, last), .score_from = 1};
  window.tokens.insert(window.tokens.begin(), kPrefix);
  return window;
}

// By hand, from the definition of lm-evaluation-harness's get_rolling_token_windows.
TEST(RollingWindows, DisjointOnesMoveTheLastBack) {
  EXPECT_THAT(rolling_windows(count_up(34), kPrefix, 10, 10),
              ElementsAre(first_window(9), ScoredTokens{span_of(9, 19), 1},
                          ScoredTokens{span_of(19, 29), 1}, ScoredTokens{span_of(23, 33), 7}));
}

TEST(RollingWindows, AStrideLeavesContext) {
  EXPECT_THAT(rolling_windows(count_up(34), kPrefix, 10, 6),
              ElementsAre(first_window(9), ScoredTokens{span_of(5, 15), 5},
                          ScoredTokens{span_of(11, 21), 5}, ScoredTokens{span_of(17, 27), 5},
                          ScoredTokens{span_of(23, 33), 5}));
}

TEST(RollingWindows, AStrideOfOnePredictsOneTokenEach) {
  const auto windows = rolling_windows(count_up(14), kPrefix, 10, 1);
  EXPECT_THAT(windows,
              ElementsAre(first_window(9), ScoredTokens{span_of(0, 10), 10},
                          ScoredTokens{span_of(1, 11), 10}, ScoredTokens{span_of(2, 12), 10},
                          ScoredTokens{span_of(3, 13), 10}));
}

TEST(RollingWindows, AShortTextIsOneWindow) {
  EXPECT_THAT(rolling_windows(count_up(3), kPrefix, 10, 10), ElementsAre(first_window(2)));
  EXPECT_THAT(rolling_windows(count_up(10), kPrefix, 10, 10), ElementsAre(first_window(9)));
  EXPECT_THAT(rolling_windows(count_up(1), kPrefix, 10, 10), ElementsAre(first_window(0)));
  EXPECT_TRUE(rolling_windows({}, kPrefix, 10, 10).empty());
}

TEST(RollingWindows, PredictEveryTokenOnceAndFeedNoMoreThanTheWindow) {
  for (const std::int64_t window : {1, 2, 7, 16}) {
    for (std::int64_t stride = 1; stride <= window; ++stride) {
      for (std::int64_t size = 1; size <= 50; ++size) {
        Tokens predicted;
        for (const auto& one : rolling_windows(count_up(size), kPrefix, window, stride)) {
          EXPECT_LE(static_cast<std::int64_t>(one.tokens.size()) - 1, window);
          // Full context wherever there is so much text.
          EXPECT_EQ(static_cast<std::int64_t>(one.tokens.size()), std::min(size, window) + 1);
          EXPECT_GE(one.score_from, 1);
          EXPECT_EQ(one.targets(), static_cast<std::int64_t>(one.tokens.size()) - one.score_from);
          predicted.insert(predicted.end(), one.tokens.begin() + one.score_from, one.tokens.end());
        }
        ASSERT_EQ(predicted, count_up(size)) << window << " " << stride << " " << size;
      }
    }
  }
}

TEST(StreamWindows, FeedWholeWindowsAndDropTheRest) {
  EXPECT_THAT(stream_windows(count_up(10), 3),
              ElementsAre(ScoredTokens{span_of(0, 3), 1}, ScoredTokens{span_of(3, 6), 1},
                          ScoredTokens{span_of(6, 9), 1}));
  EXPECT_EQ(stream_windows(count_up(9), 3).size(), 2u) << "the last target is missing";
  EXPECT_TRUE(stream_windows(count_up(3), 3).empty());
  EXPECT_TRUE(stream_windows({}, 3).empty());
}

}  // namespace
}  // namespace stagecoach::job
