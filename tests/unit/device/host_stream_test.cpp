#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "device/host/host_device.hpp"

namespace stagecoach::test {
namespace {

using device::Event;
using device::make_host_stream;
using device::Stream;
using std::chrono::milliseconds;

// Work that holds its stream until it is opened.
class Gate {
 public:
  std::function<void()> work() {
    return [opened = opened_] { opened.wait(); };
  }
  void open() { promise_.set_value(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> opened_ = promise_.get_future().share();
};

TEST(HostStream, RunsInOrder) {
  AbortSignal abort;
  const auto stream = make_host_stream("order", abort);
  std::vector<int> seen;  // unguarded: only the stream's thread writes it
  for (int i = 0; i < 1000; ++i) {
    stream->enqueue([&seen, i] { seen.push_back(i); });
  }
  stream->record().wait();
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
  }
}

// A wait for another stream is no work of this one.
TEST(HostStream, IsBusyWhileItsWorkRuns) {
  AbortSignal abort;
  const auto stream = make_host_stream("busy", abort);
  EXPECT_EQ(stream->busy_seconds(), 0);
  stream->enqueue([] { std::this_thread::sleep_for(milliseconds(20)); });
  stream->record().wait();
  const auto busy = stream->busy_seconds();
  EXPECT_GE(busy, 0.02);

  const auto other = make_host_stream("other", abort);
  Gate gate;
  other->enqueue(gate.work());
  stream->wait(other->record());
  const auto after = stream->record();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(after.passed());
  gate.open();
  after.wait();
  EXPECT_EQ(stream->busy_seconds(), busy);
}

// Of 4000 items about 500 sleep for about 100 us each: 50 ms, and never less than asked.
TEST(HostStream, SleepsBeforeSomeItemsWithASeed) {
  AbortSignal abort;
  for (const std::uint64_t seed : {1, 2, 3}) {
    const auto stream = make_host_stream("slow", abort, seed);
    std::vector<int> seen;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 4000; ++i) {
      stream->enqueue([&seen, i] { seen.push_back(i); });
    }
    stream->record().wait();
    EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(25)) << "seed " << seed;
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_EQ(seen.size(), 4000u);
  }
}

TEST(HostStream, RunsBesideItsCaller) {
  AbortSignal abort;
  const auto stream = make_host_stream("beside", abort);
  Gate gate;
  const auto caller = std::this_thread::get_id();
  std::thread::id runner;
  stream->enqueue(gate.work());
  stream->enqueue([&] { runner = std::this_thread::get_id(); });
  const Event event = stream->record();
  EXPECT_FALSE(event.passed());
  gate.open();
  event.wait();
  EXPECT_TRUE(event.passed());
  EXPECT_NE(runner, caller);
}

TEST(HostStream, AnEventPassesAtItsPlaceOnly) {
  AbortSignal abort;
  const auto stream = make_host_stream("place", abort);
  Gate gate;
  const Event before = stream->record();
  stream->enqueue(gate.work());
  const Event after = stream->record();
  before.wait();
  EXPECT_FALSE(after.passed());
  gate.open();
  after.wait();
  EXPECT_TRUE(Event().passed());
  Event().wait();
}

TEST(HostStream, WaitsForEventsOfOtherStreams) {
  AbortSignal abort;
  const auto first = make_host_stream("first", abort);
  const auto second = make_host_stream("second", abort);
  Gate gate;
  int value = 0;  // unguarded: the events alone order the threads
  for (int round = 0; round < 200; ++round) {
    if (round == 0) {
      first->enqueue(gate.work());
    }
    first->enqueue([&value] { ++value; });
    second->wait(first->record());
    second->enqueue([&value] { value *= -1; });
    first->wait(second->record());
  }
  gate.open();
  first->record().wait();
  second->record().wait();
  EXPECT_EQ(value, 0);
}

TEST(HostStream, DestructorFinishesWhatWasEnqueued) {
  AbortSignal abort;
  int done = 0;
  {
    const auto stream = make_host_stream("drain", abort);
    for (int i = 0; i < 100; ++i) {
      stream->enqueue([&done] { ++done; });
    }
  }
  EXPECT_EQ(done, 100);
}

TEST(HostStream, FreesWhatWorkOwnsBeforeLaterWorkRuns) {
  AbortSignal abort;
  const auto stream = make_host_stream("owner", abort);
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owned;
  bool freed = false;
  stream->enqueue([owned = std::move(owned)] {});
  stream->enqueue([&] { freed = watch.expired(); });
  stream->record().wait();
  EXPECT_TRUE(freed);
}

TEST(HostStream, FailureRaisesTheAbortSignalAndDropsLaterWork) {
  AbortSignal abort;
  const auto stream = make_host_stream("failing", abort);
  bool ran_later = false;
  const Event before = stream->record();
  before.wait();
  stream->enqueue([] { throw IoError("disk is gone"); });
  stream->enqueue([&] { ran_later = true; });
  const Event after = stream->record();
  before.wait();  // passed before the failure
  EXPECT_THROW(after.wait(), JobAborted);
  EXPECT_FALSE(after.passed());
  EXPECT_THROW(stream->record().wait(), JobAborted);
  EXPECT_FALSE(ran_later);
  ASSERT_TRUE(abort.raised());
  try {
    std::rethrow_exception(abort.cause());
  } catch (const IoError& error) {
    EXPECT_STREQ(error.what(), "disk is gone");
  }
}

TEST(HostStream, FailureReachesStreamsThatWaitForIt) {
  AbortSignal abort;
  const auto first = make_host_stream("first", abort);
  const auto second = make_host_stream("second", abort);
  Gate gate;
  bool ran = false;
  first->enqueue(gate.work());
  first->enqueue([] { throw Error("first failed"); });
  second->wait(first->record());
  second->enqueue([&] { ran = true; });
  gate.open();
  EXPECT_THROW(second->record().wait(), JobAborted);
  EXPECT_FALSE(ran);
  try {
    std::rethrow_exception(abort.cause());
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "first failed");
  }
}

TEST(HostStream, AnAbortElsewhereEndsWaits) {
  AbortSignal abort;
  const auto blocked = make_host_stream("blocked", abort);
  const auto waiting = make_host_stream("waiting", abort);
  Gate gate;
  blocked->enqueue(gate.work());
  const Event never = blocked->record();
  waiting->wait(never);
  const Event behind = waiting->record();
  std::thread raiser([&] {
    std::this_thread::sleep_for(milliseconds(50));
    abort.raise(std::make_exception_ptr(Error("another rank failed")));
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(never.wait(), JobAborted);
  EXPECT_THROW(behind.wait(), JobAborted);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  raiser.join();
  gate.open();
}

TEST(HostStream, DestructorOfAnAbortedStreamDropsItsWork) {
  AbortSignal abort;
  bool ran = false;
  {
    Gate gate;
    const auto blocked = make_host_stream("blocked", abort);
    const auto waiting = make_host_stream("waiting", abort);
    blocked->enqueue(gate.work());
    waiting->wait(blocked->record());
    waiting->enqueue([&] { ran = true; });
    abort.raise(std::make_exception_ptr(Error("stop")));
    gate.open();
  }
  EXPECT_FALSE(ran);
}

TEST(HostStream, MessageNamesTheStream) {
  AbortSignal abort;
  const auto stream = make_host_stream("disk-read", abort);
  stream->enqueue([] { throw Error("x"); });
  try {
    stream->record().wait();
    FAIL() << "no exception";
  } catch (const JobAborted& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("disk-read"));
  }
}

}  // namespace
}  // namespace stagecoach::test
