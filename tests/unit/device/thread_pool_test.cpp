#include "device/host/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace stagecoach::test {
namespace {

using device::ThreadPool;

TEST(ThreadPool, CallsEachIndexOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<int> calls(static_cast<std::size_t>(count));  // plain: indexes are disjoint
      pool.parallel_for(count, [&](std::int64_t index, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        ++calls[static_cast<std::size_t>(index)];
      });
      EXPECT_EQ(calls, std::vector<int>(static_cast<std::size_t>(count), 1)) << threads;
    }
  }
}

TEST(ThreadPool, AWorkerRunsOneCallAtATime) {
  ThreadPool pool(4);
  std::vector<std::int64_t> sums(4);  // plain: TSan or a lost update would show an overlap
  for (int round = 0; round < 500; ++round) {
    pool.parallel_for(64,
                      [&](std::int64_t, int worker) { ++sums[static_cast<std::size_t>(worker)]; });
  }
  EXPECT_EQ(sums[0] + sums[1] + sums[2] + sums[3], 500 * 64);
}

TEST(ThreadPool, OneThreadRunsOnTheCaller) {
  ThreadPool pool(1);
  const auto caller = std::this_thread::get_id();
  pool.parallel_for(10, [&](std::int64_t, int worker) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(worker, 0);
  });
}

TEST(ThreadPool, WorkersTakePart) {
  ThreadPool pool(2);
  std::atomic<int> inside{0};
  // Both calls must be inside at once for either to return: the caller alone would hang.
  pool.parallel_for(2, [&](std::int64_t, int) {
    ++inside;
    while (inside.load() < 2) {
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(inside.load(), 2);
}

TEST(ThreadPool, SleepingWorkersWakeUp) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> inside{0};
    pool.parallel_for(2, [&](std::int64_t, int) {
      ++inside;
      while (inside.load() < 2) {
        std::this_thread::yield();
      }
    });
  }
}

TEST(ThreadPool, ThrowsTheBodysExceptionAndStaysUsable) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::atomic<int> calls{0};
    EXPECT_THROW(pool.parallel_for(100000,
                                   [&](std::int64_t, int) {
                                     ++calls;
                                     throw IoError("broken");
                                   }),
                 IoError);
    EXPECT_LE(calls.load(), threads);
    calls = 0;
    pool.parallel_for(10, [&](std::int64_t, int) { ++calls; });
    EXPECT_EQ(calls.load(), 10);
  }
}

TEST(ThreadPool, CallersTakeTurns) {
  ThreadPool pool(3);
  std::vector<std::int64_t> per_worker(3);
  const auto loop = [&] {
    for (int round = 0; round < 200; ++round) {
      pool.parallel_for(
          16, [&](std::int64_t, int worker) { ++per_worker[static_cast<std::size_t>(worker)]; });
    }
  };
  std::thread other(loop);
  loop();
  other.join();
  EXPECT_EQ(per_worker[0] + per_worker[1] + per_worker[2], 2 * 200 * 16);
}

TEST(ThreadPool, RefusesNoThreads) { EXPECT_THROW(ThreadPool(0), InternalError); }

}  // namespace
}  // namespace stagecoach::test
