#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "cuda/small_case.hpp"
#include "device/host/host_device.hpp"

namespace stagecoach::test {
namespace {

using device::Event;
using std::chrono::milliseconds;

class CudaStreamTest : public testing::Test {
 protected:
  std::unique_ptr<device::Stream> cuda(const std::string& name) {
    return case_->create_stream(name);
  }
  std::unique_ptr<device::Stream> host(const std::string& name) {
    return device::make_host_stream(name, host_abort_);
  }

  // Outlives the streams of `cuda` in the tests, as the job's does.
  AbortSignal host_abort_;
  CudaCase case_{kSmallShape, kSmallMemory};
};

TEST_F(CudaStreamTest, RunsInOrder) {
  const auto stream = cuda("order");
  std::vector<int> seen;  // unguarded: work of one stream never runs at once
  for (int i = 0; i < 300; ++i) {
    stream->enqueue([&seen, i] { seen.push_back(i); });
  }
  stream->record().wait();
  ASSERT_EQ(seen.size(), 300u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST_F(CudaStreamTest, AnEventPassesAtItsPlaceOnly) {
  const auto stream = cuda("place");
  Gate gate;
  const auto before = stream->record();
  stream->enqueue(gate.work());
  const auto after = stream->record();
  before.wait();
  EXPECT_TRUE(before.passed());
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(after.passed());
  gate.open();
  after.wait();
  EXPECT_TRUE(after.passed());
}

TEST_F(CudaStreamTest, NeverHoldsUpItsCaller) {
  const auto blocked = cuda("blocked");
  const auto waiting = cuda("waiting");
  const auto elsewhere = host("elsewhere");
  Gate gate;
  elsewhere->enqueue(gate.work());
  blocked->wait(elsewhere->record());
  for (int i = 0; i < 2000; ++i) {
    waiting->wait(blocked->record());
    blocked->wait(waiting->record());
  }
  const auto last = waiting->record();
  EXPECT_FALSE(last.passed());
  gate.open();
  last.wait();
}

// CUDA takes a wait for an event that nobody has recorded yet for no wait.
TEST_F(CudaStreamTest, WaitsForEventsThatAreNotIssuedYet) {
  const auto late = cuda("late");
  const auto early = cuda("early");
  const auto elsewhere = host("elsewhere");
  constexpr std::size_t kSize = 4001;
  auto* const from = case_.take<std::byte>(kSize);
  auto* const to = case_.put(pattern(kSize, 1));
  Gate gate;
  elsewhere->enqueue(gate.work());
  late->wait(elsewhere->record());
  const auto source = pattern(kSize, 2);
  case_->copy_from_host(*late, from, source.data(), kSize);
  early->wait(late->record());
  move_on_device(*early, to, from, kSize);
  const auto moved = early->record();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(moved.passed());
  gate.open();
  moved.wait();
  EXPECT_EQ(case_.get(to, kSize), source);
}

TEST_F(CudaStreamTest, HostAndCudaWaitForEachOther) {
  const auto here = cuda("here");
  const auto there = host("there");
  int value = 0;  // unguarded: the events alone order the threads
  for (int round = 0; round < 200; ++round) {
    here->enqueue([&value] { ++value; });
    there->wait(here->record());
    there->enqueue([&value] { value *= -1; });
    here->wait(there->record());
  }
  here->record().wait();
  there->record().wait();
  EXPECT_EQ(value, 0);
}

TEST_F(CudaStreamTest, AnEventOutlivesItsStream) {
  Event event;
  int done = 0;
  {
    const auto stream = cuda("short");
    for (int i = 0; i < 100; ++i) {
      stream->enqueue([&done] { ++done; });
    }
    event = stream->record();
  }
  EXPECT_EQ(done, 100);  // the destructor waited
  EXPECT_TRUE(event.passed());
  event.wait();
}

TEST_F(CudaStreamTest, FreesWhatWorkOwnsBeforeLaterWorkRuns) {
  const auto stream = cuda("owner");
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owned;
  bool freed = false;
  stream->enqueue([owned = std::move(owned)] {});
  stream->record().wait();
  stream->enqueue([&] { freed = watch.expired(); });
  stream->record().wait();
  EXPECT_TRUE(freed);
}

TEST_F(CudaStreamTest, FailingWorkRaisesTheAbortSignalAndDropsLaterWork) {
  const auto stream = cuda("failing");
  bool ran_later = false;
  const auto before = stream->record();
  before.wait();
  stream->enqueue([] { throw IoError("the disk is gone"); });
  stream->enqueue([&] { ran_later = true; });
  const auto after = stream->record();
  before.wait();  // seen to pass before the failure
  EXPECT_THROW(after.wait(), JobAborted);
  EXPECT_FALSE(after.passed());
  EXPECT_THROW(stream->record().wait(), JobAborted);
  EXPECT_FALSE(ran_later);
  ASSERT_TRUE(case_.abort().raised());
  EXPECT_THROW(std::rethrow_exception(case_.abort().cause()), IoError);
}

TEST_F(CudaStreamTest, AnErrorOfCudaRaisesTheAbortSignal) {
  const auto stream = cuda("failing");
  dynamic_cast<device::cuda::CudaStream&>(*stream).issue(
      [] { device::cuda::check_cuda(cudaErrorInvalidValue, "do the impossible"); });
  EXPECT_THROW(stream->record().wait(), JobAborted);
  try {
    std::rethrow_exception(case_.abort().cause());
  } catch (const CudaError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("CUDA could not do the impossible: "));
    EXPECT_THAT(error.what(), testing::HasSubstr("(error 1)"));
  }
}

// A failure ends waits for what will never come, and nothing hangs.
TEST(CudaStreamAbort, EndsWaits) {
  AbortSignal abort;
  const auto device =
      device::make_cuda_device({.index = 0, .memory_bytes = 0, .delay_seed = 0}, abort);
  AbortSignal never_raised;
  Gate gate;
  const auto elsewhere = device::make_host_stream("elsewhere", never_raised);
  elsewhere->enqueue(gate.work());
  {
    const auto first = device->create_stream("first");
    const auto second = device->create_stream("second");
    const auto host = device::make_host_stream("host", abort);
    host->enqueue([&abort] {
      while (!abort.raised()) {
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
    first->wait(host->record());
    first->enqueue([] {});
    const auto never = first->record();
    second->wait(never);
    const auto behind = second->record();
    std::thread raiser([&] {
      std::this_thread::sleep_for(milliseconds(30));
      abort.raise(std::make_exception_ptr(Error("another rank failed")));
    });
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THROW(never.wait(), JobAborted);
    EXPECT_THROW(behind.wait(), JobAborted);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
    raiser.join();
  }
  gate.open();
}

}  // namespace
}  // namespace stagecoach::test
