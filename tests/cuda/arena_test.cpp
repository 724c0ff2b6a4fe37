#include "device/cuda/arena.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "base/error.hpp"

namespace stagecoach::test {
namespace {

using device::cuda::Arena;
using testing::HasSubstr;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const OutOfMemory& error) {
    return error.what();
  }
  return "no OutOfMemory";
}

TEST(Arena, CountsWhatItGives) {
  Arena arena("cuda:0's memory", 0, 10'000);
  auto* const first = arena.allocate(1000, "a");
  auto* const second = arena.allocate(3001, "b");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % Arena::kAlignment, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second) % Arena::kAlignment, 0u);
  EXPECT_EQ(arena.used_bytes(), 4001u);
  arena.release(second, 3001);
  EXPECT_EQ(arena.used_bytes(), 1000u);
  EXPECT_EQ(arena.peak_bytes(), 4001u);
  EXPECT_EQ(arena.allocate(0, "nothing"), nullptr);
  arena.release(nullptr, 0);
  arena.release(first, 1000);
  EXPECT_EQ(arena.used_bytes(), 0u);
}

TEST(Arena, SaysWhatDoesNotFit) {
  Arena arena("cuda:0's memory", 0, std::size_t{8} << 20);
  auto* const held = arena.allocate(std::size_t{6} << 20, "weights");
  EXPECT_EQ(message_of([&] { static_cast<void>(arena.allocate(std::size_t{3} << 20, "pages")); }),
            "cannot take 3.00 MiB of cuda:0's memory for pages: 6.00 MiB of 8.00 MiB are used");
  EXPECT_EQ(arena.used_bytes(), std::size_t{6} << 20);
  arena.release(held, std::size_t{6} << 20);
}

TEST(Arena, WithoutMemoryGivesNone) {
  Arena arena("cuda:0's memory", 0, 0);
  EXPECT_THAT(message_of([&] { static_cast<void>(arena.allocate(1, "a test")); }),
              HasSubstr("cuda:0's memory for a test"));
  EXPECT_EQ(arena.used_bytes(), 0u);
}

// A plan is checked by the sum of its sizes: rounding them up must not break it.
TEST(Arena, GivesEverySumWithinItsLimit) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<std::size_t> sizes;
    std::size_t sum = 0;
    for (int i = 0; i < 4000; ++i) {
      sizes.push_back(1 + random() % 1000);
      sum += sizes.back();
    }
    Arena arena("memory", 0, sum);
    std::vector<std::byte*> pieces;
    for (const auto size : sizes) {
      pieces.push_back(arena.allocate(size, "a part of the plan"));
    }
    EXPECT_EQ(arena.used_bytes(), sum);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      arena.release(pieces[i], sizes[i]);
    }
  }
}

// In any order; pieces never overlap, and when all are free it is one piece again.
TEST(Arena, TakesBackInAnyOrder) {
  constexpr std::size_t kLimit = std::size_t{1} << 20;
  std::mt19937 random(5);
  Arena arena("memory", 0, kLimit);
  for (int trial = 0; trial < 20; ++trial) {
    std::map<std::byte*, std::size_t> held;
    for (int step = 0; step < 400; ++step) {
      if (random() % 3 != 0 || held.empty()) {
        const auto size = 1 + random() % 20'000;
        try {
          auto* const data = arena.allocate(size, "a piece");
          const auto after = held.lower_bound(data);
          ASSERT_TRUE(after == held.end() || data + size <= after->first);
          ASSERT_TRUE(after == held.begin() ||
                      std::prev(after)->first + std::prev(after)->second <= data);
          held.emplace(data, size);
        } catch (const OutOfMemory&) {
          continue;
        }
      } else {
        const auto one =
            std::next(held.begin(), static_cast<std::ptrdiff_t>(random() % held.size()));
        arena.release(one->first, one->second);
        held.erase(one);
      }
    }
    for (const auto& [data, size] : held) {
      arena.release(data, size);
    }
    ASSERT_EQ(arena.used_bytes(), 0u);
    auto* const whole = arena.allocate(kLimit, "all of it");
    arena.release(whole, kLimit);
  }
}

TEST(Arena, TellsWhatTheGpuHasFree) {
  EXPECT_THAT(message_of([] { Arena("cuda:0's memory", 0, std::size_t{1} << 50); }),
              testing::AllOf(HasSubstr("of cuda:0's memory: "), HasSubstr(" are free"),
                             HasSubstr("cannot take 1.00 PiB")));
}

}  // namespace
}  // namespace stagecoach::test
