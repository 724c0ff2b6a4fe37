#include "offload/disk_stream.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "device/host/host_device.hpp"
#include "device/host/host_event.hpp"
#include "offload/spill_file.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::offload {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr std::size_t kBlock = kDiskAlignment;

std::string cause_of(const AbortSignal& abort) {
  try {
    if (abort.cause() != nullptr) {
      std::rethrow_exception(abort.cause());
    }
  } catch (const IoError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("not an IoError: ") + error.what();
  }
  return "none";
}

bool passes_soon(const device::Event& event) {
  for (int i = 0; i < 1000 && !event.passed(); ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  return event.passed();
}

void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
    const auto word = random();
    std::memcpy(bytes.data() + i, &word, sizeof(word));
  }
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::ranges::equal(a, b);
}

class DiskStreamTest : public ::testing::TestWithParam<DiskBackend> {
 protected:
  // Null, and the test skipped, where the kernel refuses the backend.
  std::unique_ptr<DiskStream> make(std::size_t request_bytes = 16 * kBlock,
                                   std::uint64_t delay_seed = 0) {
    DiskOptions options;
    options.backend = GetParam();
    options.depth = 4;
    options.request_bytes = request_bytes;
    options.delay_seed = delay_seed;
    return make_disk_stream("disk", options, abort_);
  }

  void SetUp() override {
    try {
      make();
    } catch (const IoError& error) {
      GTEST_SKIP() << error.what();
    }
  }

  device::Event never() {
    return device::Event(std::make_shared<device::HostEvent>("never", abort_));
  }

  void compare_with_a_copy(std::uint64_t delay_seed, int steps);

  AbortSignal abort_;
  testing::TempFolder folder_;
};

// Regions of the file that transfers in flight may touch.
struct Region {
  std::size_t begin;
  std::size_t end;
  bool write;
  [[nodiscard]] bool conflicts(const Region& other) const {
    return (write || other.write) && begin < other.end && other.begin < end;
  }
};

// A buffer with a transfer in flight, and for a read what it is to bring.
struct Slot {
  std::span<std::byte> bytes;
  device::Event event;
  std::vector<std::byte> expected;

  void settle() {
    event.wait();
    EXPECT_TRUE(same(bytes.first(expected.size()), expected));
    expected.clear();
  }
};

void DiskStreamTest::compare_with_a_copy(std::uint64_t delay_seed, int steps) {
  constexpr std::size_t kBlocks = 256;
  constexpr std::size_t kMostBlocks = 40;
  constexpr std::size_t kSlots = 12;
  const auto spill = make_spill_file(folder_.path(), kBlocks * kBlock);
  const AlignedMemory memory(kSlots * kMostBlocks * kBlock, "slots");
  std::vector<std::byte> copy(kBlocks * kBlock);
  std::vector<Slot> slots(kSlots);
  for (std::size_t i = 0; i < kSlots; ++i) {
    slots[i].bytes = memory.bytes().subspan(i * kMostBlocks * kBlock, kMostBlocks * kBlock);
  }
  std::vector<Region> open;
  std::mt19937_64 random(7);
  const auto stream = make(16 * kBlock, delay_seed);
  for (int step = 0; step < steps; ++step) {
    auto& slot = slots[static_cast<std::size_t>(step) % kSlots];
    slot.settle();
    const auto blocks = 1 + random() % kMostBlocks;
    const auto begin = random() % (kBlocks - blocks + 1) * kBlock;
    const Region region{begin, begin + blocks * kBlock, random() % 2 == 0};
    if (std::ranges::any_of(open, [&](const auto& other) { return region.conflicts(other); })) {
      stream->wait(stream->record());
      open.clear();
    }
    open.push_back(region);
    const auto bytes = slot.bytes.first(region.end - region.begin);
    const auto place = std::span(copy).subspan(region.begin, bytes.size());
    if (region.write) {
      fill(bytes, random());
      std::ranges::copy(bytes, place.begin());
      stream->write(spill.file, region.begin, bytes);
    } else {
      slot.expected.assign(place.begin(), place.end());
      stream->read(spill.file, region.begin, bytes, bytes.size());
    }
    slot.event = stream->record();
  }
  for (auto& slot : slots) {
    slot.settle();
  }
  EXPECT_FALSE(abort_.raised()) << cause_of(abort_);
}

TEST_P(DiskStreamTest, KeepsWhatIsWritten) { compare_with_a_copy(0, 500); }

TEST_P(DiskStreamTest, KeepsWhatIsWrittenWithDelays) { compare_with_a_copy(3, 150); }

TEST_P(DiskStreamTest, AnEventPassesAfterAllEarlierTransfers) {
  constexpr std::size_t kBytes = 2048 * kBlock;
  const auto path = folder_.file("out");
  const DirectFile file(path, ::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT, 0600), true);
  const AlignedMemory memory(2 * kBytes, "data");
  const auto out = memory.bytes().first(kBytes);
  const auto back = memory.bytes().last(kBytes);
  fill(out, 1);
  const auto stream = make();
  stream->write(file, 0, out);
  stream->record().wait();
  const auto text = read_text_file(path);
  EXPECT_TRUE(same(out, std::as_bytes(std::span(text))));
  stream->read(file, 0, back, kBytes);
  stream->record().wait();
  EXPECT_TRUE(same(out, back));
}

TEST_P(DiskStreamTest, WaitsForAnotherStream) {
  const auto spill = make_spill_file(folder_.path(), 8 * kBlock);
  const AlignedMemory memory(16 * kBlock, "data");
  const auto out = memory.bytes().first(8 * kBlock);
  const auto back = memory.bytes().last(8 * kBlock);
  const auto disk = make();
  const auto host = device::make_host_stream("host", abort_);
  host->enqueue([&] {
    std::this_thread::sleep_for(milliseconds(30));
    fill(out, 5);
  });
  disk->wait(host->record());
  disk->write(spill.file, 0, out);
  disk->wait(disk->record());
  disk->read(spill.file, 0, back, back.size());
  bool equal = false;
  host->wait(disk->record());
  host->enqueue([&] { equal = same(out, back); });
  host->record().wait();
  EXPECT_TRUE(equal);
}

// Else a stream that waits for compute, which waits for an earlier transfer, would wait forever.
TEST_P(DiskStreamTest, EarlierEventsPassWhileItWaits) {
  constexpr std::size_t kBytes = 1024 * kBlock;
  const auto spill = make_spill_file(folder_.path(), kBytes);
  const AlignedMemory memory(kBytes, "data");
  std::promise<void> gate;
  const auto disk = make(kBlock);
  const auto host = device::make_host_stream("host", abort_);
  disk->write(spill.file, 0, memory.bytes());
  const auto written = disk->record();
  host->wait(written);
  host->enqueue([opened = gate.get_future().share()] { opened.wait(); });
  disk->wait(host->record());
  disk->read(spill.file, 0, memory.bytes(), kBytes);
  const auto read = disk->record();
  EXPECT_TRUE(passes_soon(written));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(read.passed());
  gate.set_value();
  read.wait();
}

TEST_P(DiskStreamTest, WorkRunsAfterEarlierTransfers) {
  const auto spill = make_spill_file(folder_.path(), 64 * kBlock);
  const AlignedMemory memory(128 * kBlock, "data");
  const auto out = memory.bytes().first(64 * kBlock);
  const auto back = memory.bytes().last(64 * kBlock);
  fill(out, 2);
  const auto stream = make(kBlock);
  std::vector<bool> equal;
  for (int i = 0; i < 10; ++i) {
    stream->write(spill.file, 0, out);
    stream->enqueue([&] { fill(back, 3); });
    stream->read(spill.file, 0, back, back.size());
    stream->enqueue([&] { equal.push_back(same(out, back)); });
  }
  stream->record().wait();
  EXPECT_THAT(equal, ::testing::ElementsAreArray(std::vector<bool>(10, true)));
}

TEST_P(DiskStreamTest, TheDestructorWaits) {
  const auto spill = make_spill_file(folder_.path(), 256 * kBlock);
  const AlignedMemory memory(512 * kBlock, "data");
  const auto out = memory.bytes().first(256 * kBlock);
  const auto back = memory.bytes().last(256 * kBlock);
  fill(out, 4);
  make(kBlock)->write(spill.file, 0, out);
  make(kBlock)->read(spill.file, 0, back, back.size());
  EXPECT_TRUE(same(out, back));
}

TEST_P(DiskStreamTest, AFileMayEndAfterTheLeastBytes) {
  const auto path = folder_.write("short", std::string(10000, 'x'));
  const auto file = DirectFile::open_for_reading(path);
  for (const auto request_bytes : {kBlock, 16 * kBlock}) {
    const AlignedMemory memory(8 * kBlock, "data");
    make(request_bytes)->read(file, 0, memory.bytes(), 10000);
    EXPECT_EQ(std::ranges::count(memory.bytes(), std::byte{'x'}), 10000);
  }
  EXPECT_FALSE(abort_.raised()) << cause_of(abort_);
}

TEST_P(DiskStreamTest, AShortFileIsNamed) {
  const auto path = folder_.write("short", std::string(10000, 'x'));
  const auto file = DirectFile::open_for_reading(path);
  const AlignedMemory memory(4 * kBlock, "data");
  make()->read(file, 0, memory.bytes(), 12000);
  EXPECT_EQ(cause_of(abort_),
            path + " ended at byte 10000: truncated? 2000 more bytes were expected");
}

TEST_P(DiskStreamTest, AFailedTransferStopsTheJob) {
  const auto path = folder_.file("unreadable");
  const DirectFile file(path, ::open(path.c_str(), O_WRONLY | O_CREAT, 0600), false);
  const AlignedMemory memory(4 * kBlock, "data");
  bool ran = false;
  {
    const auto stream = make();
    const auto before = stream->record();
    stream->read(file, 2 * kBlock, memory.bytes(), memory.size_bytes());
    const auto after = stream->record();
    stream->enqueue([&] { ran = true; });
    before.wait();
    EXPECT_THROW(after.wait(), JobAborted);
    EXPECT_THROW(stream->record().wait(), JobAborted);
  }
  EXPECT_FALSE(ran);
  EXPECT_EQ(cause_of(abort_), "cannot read " + path + " at byte 8192: Bad file descriptor");
}

TEST_P(DiskStreamTest, AFullDiskIsSaid) {
  const DirectFile file("/dev/full", ::open("/dev/full", O_RDWR), false);
  const AlignedMemory memory(kBlock, "data");
  make()->write(file, 0, memory.bytes());
  EXPECT_THAT(cause_of(abort_), HasSubstr("cannot write /dev/full at byte 0: No space left"));
}

TEST_P(DiskStreamTest, AFailureOfWorkStopsTheJob) {
  const auto stream = make();
  stream->enqueue([] { throw IoError("broken"); });
  EXPECT_THROW(stream->record().wait(), JobAborted);
  EXPECT_EQ(cause_of(abort_), "broken");
}

TEST_P(DiskStreamTest, AFailureElsewhereEndsItsWaits) {
  const auto spill = make_spill_file(folder_.path(), kBlock);
  const AlignedMemory memory(kBlock, "data");
  auto stream = make();
  stream->wait(never());
  stream->read(spill.file, 0, memory.bytes(), kBlock);
  const auto event = stream->record();
  std::thread failing([this] {
    std::this_thread::sleep_for(milliseconds(30));
    abort_.raise(std::make_exception_ptr(IoError("elsewhere")));
  });
  EXPECT_THROW(event.wait(), JobAborted);
  stream.reset();
  failing.join();
  EXPECT_FALSE(event.passed());
  EXPECT_EQ(cause_of(abort_), "elsewhere");
}

TEST_P(DiskStreamTest, CountsWhatItDid) {
  const auto spill = make_spill_file(folder_.path(), 64 * kBlock);
  const AlignedMemory memory(64 * kBlock, "data");
  const auto stream = make();
  EXPECT_EQ(stream->counters().requests, 0u);
  stream->write(spill.file, 0, memory.bytes());
  stream->wait(stream->record());
  stream->read(spill.file, 0, memory.bytes().first(17 * kBlock), 17 * kBlock);
  stream->record().wait();
  const auto counters = stream->counters();
  EXPECT_EQ(counters.bytes_written, 64 * kBlock);
  EXPECT_EQ(counters.bytes_read, 17 * kBlock);
  EXPECT_EQ(counters.requests, 6u);
  EXPECT_GT(counters.busy_seconds, 0);
}

TEST_P(DiskStreamTest, DescribesItself) {
  EXPECT_EQ(make()->description(),
            GetParam() == DiskBackend::uring ? "io_uring, 4 requests of 64.0 KiB" : "4 threads");
}

TEST_P(DiskStreamTest, TransfersAreAligned) {
  const auto spill = make_spill_file(folder_.path(), 4 * kBlock);
  const AlignedMemory memory(4 * kBlock, "data");
  const auto bytes = memory.bytes();
  const auto stream = make();
  EXPECT_THROW(stream->read(spill.file, 512, bytes, 0), InternalError);
  EXPECT_THROW(stream->read(spill.file, 0, bytes.first(100), 0), InternalError);
  EXPECT_THROW(stream->write(spill.file, 0, bytes.subspan(512, kBlock)), InternalError);
  EXPECT_THROW(stream->read(spill.file, 0, bytes, 5 * kBlock), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Backends, DiskStreamTest,
                         ::testing::Values(DiskBackend::uring, DiskBackend::threads),
                         [](const auto& info) {
                           return info.param == DiskBackend::uring ? "uring" : "threads";
                         });

}  // namespace
}  // namespace stagecoach::offload
