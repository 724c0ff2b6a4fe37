#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "cuda/small_case.hpp"
#include "device/cuda/staged_copies.hpp"
#include "device/host/host_device.hpp"

namespace stagecoach::test {
namespace {

using device::cuda::StagedCopies;

// Odd ones, around a piece, and several turns of the ring.
const std::vector<std::size_t> kSizes{0,
                                      1,
                                      4097,
                                      StagedCopies::kPieceBytes - 1,
                                      StagedCopies::kPieceBytes,
                                      StagedCopies::kPieceBytes + 1,
                                      2 * StagedCopies::kRingBytes + 12345};

class CopiesTest : public testing::TestWithParam<bool> {
 protected:
  // Pins where the parameter says so.
  [[nodiscard]] std::unique_ptr<device::Pinned> pin(std::vector<std::byte>& memory) const {
    if (!GetParam()) {
      return nullptr;
    }
    auto pinned = case_->pin(memory);
    EXPECT_NE(pinned, nullptr);
    return pinned;
  }

  CudaCase case_{kSmallShape, kSmallMemory};
};

INSTANTIATE_TEST_SUITE_P(Host, CopiesTest, testing::Bool(), [](const auto& info) {
  return info.param ? std::string("Pinned") : std::string("Pageable");
});

TEST_P(CopiesTest, GoThereAndBack) {
  for (const auto size : kSizes) {
    auto source = pattern(size + 1, size);
    std::vector<std::byte> result(size + 2, std::byte{0x5a});
    const auto pinned_source = pin(source);
    const auto pinned_result = pin(result);
    auto* const there = case_.take<std::byte>(size + 1);
    // From and to addresses that are not aligned, and no byte beyond.
    case_->copy_from_host(case_.stream(), there + 1, source.data() + 1, size);
    case_->copy_to_host(case_.stream(), result.data() + 1, there + 1, size);
    case_.stream().record().wait();
    EXPECT_EQ(std::memcmp(result.data() + 1, source.data() + 1, size), 0) << size;
    EXPECT_EQ(result.front(), std::byte{0x5a});
    EXPECT_EQ(result.back(), std::byte{0x5a});
  }
}

// What this stream and others write into the host's memory is what a later copy reads.
TEST_P(CopiesTest, ReadWhatEarlierWorkHasWritten) {
  constexpr std::size_t kSize = 300'001;
  std::vector<std::byte> host(kSize);
  const auto pinned = pin(host);
  auto* const first = case_.put(pattern(kSize, 1));
  auto* const second = case_.take<std::byte>(kSize);
  const auto other = case_->create_stream("other");
  case_->copy_to_host(case_.stream(), host.data(), first, kSize);
  case_->copy_from_host(case_.stream(), second, host.data(), kSize);
  case_.stream().record().wait();
  EXPECT_EQ(case_.get(second, kSize), pattern(kSize, 1));

  // Long enough for a copy that does not wait to be wrong.
  const auto write_late = [&host](std::uint64_t number) {
    return [&host, number] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const auto bytes = pattern(kSize, number);
      std::copy(bytes.begin(), bytes.end(), host.begin());
    };
  };
  case_.stream().enqueue(write_late(2));
  case_->copy_from_host(case_.stream(), second, host.data(), kSize);
  case_.stream().record().wait();
  EXPECT_EQ(case_.get(second, kSize), pattern(kSize, 2));

  other->enqueue(write_late(3));
  case_.stream().wait(other->record());
  case_->copy_from_host(case_.stream(), second, host.data(), kSize);
  case_.stream().record().wait();
  EXPECT_EQ(case_.get(second, kSize), pattern(kSize, 3));

  case_->copy_to_host(*other, host.data(), first, kSize);
  case_.stream().wait(other->record());
  case_->copy_from_host(case_.stream(), second, host.data(), kSize);
  case_.stream().record().wait();
  EXPECT_EQ(case_.get(second, kSize), pattern(kSize, 1));
}

TEST_P(CopiesTest, OfTwoStreamsAtOnce) {
  constexpr std::size_t kSize = 3 * StagedCopies::kPieceBytes + 77;
  std::vector<std::vector<std::byte>> sources;
  std::vector<std::vector<std::byte>> results(4, std::vector<std::byte>(kSize));
  std::vector<std::unique_ptr<device::Stream>> streams;
  std::vector<std::unique_ptr<device::Pinned>> pins;
  for (std::size_t i = 0; i < 4; ++i) {
    sources.push_back(pattern(kSize, i));
    streams.push_back(case_->create_stream("stream"));
  }
  for (std::size_t i = 0; i < 4; ++i) {
    pins.push_back(pin(sources[i]));
    pins.push_back(pin(results[i]));
    auto* const there = case_.take<std::byte>(kSize);
    case_->copy_from_host(*streams[i], there, sources[i].data(), kSize);
    case_->copy_to_host(*streams[i], results[i].data(), there, kSize);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    streams[i]->record().wait();
    EXPECT_EQ(results[i], sources[i]) << i;
  }
}

TEST(Pin, KnowsWhatIsPinned) {
  const CudaCase here(kSmallShape, kSmallMemory);
  std::vector<std::byte> memory(100'000);
  auto pinned = here->pin(memory);
  ASSERT_NE(pinned, nullptr);
  // Again: somebody else's, which stays.
  const auto again = here->pin(memory);
  EXPECT_NE(again, nullptr);
  EXPECT_NE(here->pin({}), nullptr);
  pinned.reset();
  pinned = here->pin(memory);
  EXPECT_NE(pinned, nullptr);
}

TEST(PinnedRanges, ContainOnlyWhatIsWhollyInside) {
  std::vector<std::byte> memory(1000);
  const std::span<const std::byte> all(memory);
  device::cuda::PinnedRanges ranges;
  EXPECT_FALSE(ranges.contain(all.subspan(100, 1)));
  ranges.add(all.subspan(100, 200));
  ranges.add(all.subspan(300, 100));
  EXPECT_TRUE(ranges.contain(all.subspan(100, 200)));
  EXPECT_TRUE(ranges.contain(all.subspan(150, 150)));
  EXPECT_TRUE(ranges.contain(all.subspan(300, 100)));
  EXPECT_FALSE(ranges.contain(all.subspan(99, 10)));
  EXPECT_FALSE(ranges.contain(all.subspan(250, 100)));  // two ranges: not one registration
  EXPECT_FALSE(ranges.contain(all.subspan(390, 20)));
  EXPECT_FALSE(ranges.contain(all.subspan(500, 1)));
  ranges.remove(all.subspan(100, 200));
  EXPECT_FALSE(ranges.contain(all.subspan(150, 10)));
  EXPECT_TRUE(ranges.contain(all.subspan(310, 10)));
}

}  // namespace
}  // namespace stagecoach::test
