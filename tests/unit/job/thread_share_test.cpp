#include "job/thread_share.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace stagecoach::job {
namespace {

CpuPlace place(const std::string& host, int first, int count) {
  CpuPlace made{host, std::vector<int>(static_cast<std::size_t>(count))};
  std::iota(made.cpus.begin(), made.cpus.end(), first);
  return made;
}

TEST(ThreadShare, UnboundRanksShareTheMachine) {
  const auto all = std::vector(4, place("a", 0, 16));
  EXPECT_EQ(fair_threads(all[0], all), 4);
}

TEST(ThreadShare, RanksOnOtherMachinesDoNotCount) {
  EXPECT_EQ(fair_threads(place("a", 0, 16), {place("a", 0, 16), place("b", 0, 16)}), 16);
}

TEST(ThreadShare, ARankBoundToACoreHasIt) {
  EXPECT_EQ(fair_threads(place("a", 1, 1), {place("a", 0, 1), place("a", 1, 1)}), 1);
}

TEST(ThreadShare, RanksBoundToSocketsShareTheirSocket) {
  const std::vector<CpuPlace> all = {place("a", 0, 8), place("a", 8, 8), place("a", 0, 8),
                                     place("a", 8, 8)};
  EXPECT_EQ(fair_threads(all[1], all), 4);
}

TEST(ThreadShare, MoreRanksThanCpusHaveOneThreadEach) {
  const auto all = std::vector(5, place("a", 0, 2));
  EXPECT_EQ(fair_threads(all[0], all), 1);
}

}  // namespace
}  // namespace stagecoach::job
