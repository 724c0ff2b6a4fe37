#include "plan/node_clock.hpp"

#include <gtest/gtest.h>

namespace stagecoach::plan {
namespace {

using stage::Resource;

/// Two cores, 10 of memory bandwidth, a disk that does 1.5 of both ways at once, a bus of 4.
std::array<double, kPools> capacity() {
  StepCost there_is;
  there_is.draw(Pool::cores) = 2;
  there_is.draw(Pool::memory) = 10;
  there_is.draw(Pool::disk_read) = 1;
  there_is.draw(Pool::disk_write) = 1;
  there_is.draw(Pool::disk) = 1.5;
  there_is.draw(Pool::bus) = 4;
  return there_is.draws;
}

StepCost cost(double seconds, std::initializer_list<std::pair<Pool, double>> draws = {}) {
  StepCost cost{.seconds = seconds};
  for (const auto& [pool, draw] : draws) {
    cost.draw(pool) = draw;
  }
  return cost;
}

TEST(NodeClock, WorksThatShareNothingRunBesideEachOther) {
  NodeClock clock(capacity());
  EXPECT_TRUE(clock.idle());
  clock.start({0, Resource::compute}, cost(3, {{Pool::cores, 1}}), 10);
  clock.start({0, Resource::h2d}, cost(1, {{Pool::bus, 4}}), 11);
  EXPECT_DOUBLE_EQ(clock.next_end(), 12);
  EXPECT_EQ(clock.finish().resource, Resource::h2d);
  EXPECT_DOUBLE_EQ(clock.next_end(), 13);
  EXPECT_EQ(clock.finish().resource, Resource::compute);
  EXPECT_TRUE(clock.idle());
}

TEST(NodeClock, WhatDrawsMoreThanThereIsSlowsDownInProportion) {
  NodeClock clock(capacity());
  // 3 of 2 cores while both run: each at two thirds of its speed.
  clock.start({0, Resource::compute}, cost(4, {{Pool::cores, 2}}), 0);
  clock.start({0, Resource::h2d}, cost(1, {{Pool::cores, 1}}), 0);
  EXPECT_DOUBLE_EQ(clock.next_end(), 1.5);
  EXPECT_EQ(clock.finish().resource, Resource::h2d);
  // The other has 4 - 1.5 * 2 / 3 = 3 left.
  EXPECT_DOUBLE_EQ(clock.next_end(), 4.5);
}

TEST(NodeClock, AWorkThatNeedsTheScarcestPoolWaitsForIt) {
  NodeClock clock(capacity());
  clock.start({0, Resource::compute}, cost(1, {{Pool::cores, 2}, {Pool::memory, 10}}), 0);
  clock.start({0, Resource::disk_read}, cost(1, {{Pool::memory, 10}}), 0);
  // Memory gives both a half; cores are enough.
  EXPECT_DOUBLE_EQ(clock.next_end(), 2);
}

TEST(NodeClock, AWorkLargerThanThePoolGoesByItsOwnRate) {
  NodeClock clock(capacity());
  clock.start({0, Resource::compute}, cost(1, {{Pool::memory, 20}}), 0);
  EXPECT_DOUBLE_EQ(clock.next_end(), 1);
  clock.start({0, Resource::h2d}, cost(1, {{Pool::memory, 5}}), 0);
  // 25 are drawn: the large one keeps 20 of them, the small one gets 10.
  EXPECT_EQ(clock.finish().resource, Resource::compute);
}

TEST(NodeClock, DiskDoesBothWaysAtOnceAsFarAsMeasured) {
  NodeClock clock(capacity());
  const auto reading = cost(1, {{Pool::disk_read, 1}, {Pool::disk, 1}});
  const auto writing = cost(1, {{Pool::disk_write, 1}, {Pool::disk, 1}});
  clock.start({0, Resource::disk_read}, reading, 0);
  clock.start({0, Resource::disk_write}, writing, 0);
  EXPECT_DOUBLE_EQ(clock.next_end(), 1 / 0.75);
  NodeClock two_readers(capacity());
  two_readers.start({0, Resource::disk_read}, reading, 0);
  two_readers.start({1, Resource::disk_read}, reading, 0);
  EXPECT_DOUBLE_EQ(two_readers.next_end(), 2);
}

TEST(NodeClock, EachStageHasABusOfItsOwn) {
  NodeClock clock(capacity());
  clock.start({0, Resource::h2d}, cost(1, {{Pool::bus, 4}}), 0);
  clock.start({1, Resource::h2d}, cost(1, {{Pool::bus, 4}}), 0);
  EXPECT_DOUBLE_EQ(clock.next_end(), 1);
  clock.start({1, Resource::d2h}, cost(1, {{Pool::bus, 4}}), 0);
  EXPECT_DOUBLE_EQ(clock.next_end(), 1);
  EXPECT_EQ(clock.finish().stage, 0);
  EXPECT_DOUBLE_EQ(clock.next_end(), 2);  // both ways of stage 1 at half speed
}

TEST(NodeClock, OfWorksThatEndTogetherTheFirstBegunIsFirst) {
  NodeClock clock(capacity());
  clock.start({3, Resource::compute}, cost(1), 0);
  clock.start({1, Resource::compute}, cost(1), 0);
  EXPECT_EQ(clock.finish().stage, 3);
  EXPECT_EQ(clock.finish().stage, 1);
}

}  // namespace
}  // namespace stagecoach::plan
