#include "device/cuda/transfer_ring.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>

#include "base/error.hpp"

namespace stagecoach::test {
namespace {

using device::Event;
using device::cuda::TransferRing;

struct Flag final : Event::State {
  [[nodiscard]] bool passed() const override { return passed_flag; }
  void wait() const override { passed_flag = true; }
  mutable bool passed_flag = false;
};

TEST(TransferRing, GivesAPlaceAgainOnlyAfterItsEvent) {
  TransferRing ring(1024, 256);
  std::vector<std::shared_ptr<Flag>> flags;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(ring.take(200), static_cast<std::size_t>(256 * i));
    flags.push_back(std::make_shared<Flag>());
    ring.close(Event(flags.back()));
  }
  EXPECT_FALSE(flags[0]->passed_flag);
  EXPECT_EQ(ring.take(300), 0u);  // two places
  EXPECT_TRUE(flags[0]->passed_flag);
  EXPECT_TRUE(flags[1]->passed_flag);
  EXPECT_FALSE(flags[2]->passed_flag);
}

TEST(TransferRing, KeepsAPlaceInOnePiece) {
  TransferRing ring(1024, 256);
  EXPECT_EQ(ring.take(700), 0u);
  const auto flag = std::make_shared<Flag>();
  ring.close(Event(flag));
  EXPECT_EQ(ring.take(512), 0u);  // 256 at the end are passed over
  EXPECT_TRUE(flag->passed_flag);
}

TEST(TransferRing, RefusesMoreThanItHasAtOnce) {
  TransferRing ring(1024, 256);
  EXPECT_THROW(static_cast<void>(ring.take(1025)), InternalError);
  EXPECT_EQ(ring.take(1000), 0u);
  EXPECT_TRUE(ring.open());
  EXPECT_THROW(static_cast<void>(ring.take(1)), InternalError);
  ring.close(Event());
  EXPECT_FALSE(ring.open());
  EXPECT_EQ(ring.take(1), 0u);
}

// Against a record of who uses which byte.
TEST(TransferRing, NeverGivesBytesThatAreInUse) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 50; ++trial) {
    const auto alignment = std::size_t{1} << random() % 9;
    TransferRing ring(4096, alignment);
    struct Use {
      std::size_t begin;
      std::size_t end;
      std::shared_ptr<Flag> done;
    };
    std::vector<Use> uses;
    for (int step = 0; step < 300; ++step) {
      const auto done = std::make_shared<Flag>();
      const auto places = 1 + random() % 3;
      for (std::size_t place = 0; place < places; ++place) {
        const auto size = 1 + random() % 600;
        const auto begin = ring.take(size);
        ASSERT_EQ(begin % alignment, 0u);
        ASSERT_LE(begin + size, 4096u);
        for (const auto& use : uses) {
          ASSERT_TRUE(use.done->passed_flag || begin + size <= use.begin || use.end <= begin);
        }
        uses.push_back({begin, begin + size, done});
      }
      ring.close(Event(done));
    }
  }
}

}  // namespace
}  // namespace stagecoach::test
