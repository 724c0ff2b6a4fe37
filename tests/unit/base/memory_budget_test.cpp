#include "base/memory_budget.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

TEST(MemoryBudget, CountsWhatIsTaken) {
  MemoryBudget budget("DRAM", 100);
  budget.take(60, "a");
  budget.take(40, "b");
  EXPECT_EQ(budget.used_bytes(), 100u);
  budget.give_back(60);
  budget.take(10, "c");
  EXPECT_EQ(budget.used_bytes(), 50u);
  EXPECT_EQ(budget.peak_bytes(), 100u);
  EXPECT_EQ(budget.limit_bytes(), 100u);
}

TEST(MemoryBudget, RefusesWhatGoesPastItsLimit) {
  MemoryBudget budget("DRAM", 3072);
  budget.take(1024, "weights");
  try {
    budget.take(2049, "KV pages");
    FAIL() << "took it";
  } catch (const OutOfMemory& error) {
    const std::string message = error.what();
    for (const auto* part : {"2.00 KiB of DRAM", "KV pages", "1.00 KiB of 3.00 KiB"}) {
      EXPECT_THAT(message, HasSubstr(part));
    }
  }
  EXPECT_EQ(budget.used_bytes(), 1024u);
  EXPECT_EQ(budget.peak_bytes(), 1024u);
  EXPECT_THROW(budget.take(std::numeric_limits<std::size_t>::max(), "all"), OutOfMemory);
  budget.take(2048, "what is left");
  budget.take(0, "nothing");
}

TEST(MemoryBudget, IsExactWithManyThreads) {
  MemoryBudget budget("DRAM", 1000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&budget] {
      for (int i = 0; i < 2000; ++i) {
        budget.take(250, "a share");
        budget.give_back(250);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_GE(budget.peak_bytes(), 250u);
  EXPECT_LE(budget.peak_bytes(), 1000u);
}

TEST(BudgetedMemory, IsCountedWhileItLives) {
  MemoryBudget budget("DRAM", 10000);
  {
    const BudgetedMemory memory(budget, 6000, "a test");
    EXPECT_EQ(memory.size_bytes(), 6000u);
    EXPECT_EQ(memory.bytes().data(), memory.data());
    memory.bytes().back() = std::byte{1};
    EXPECT_EQ(budget.used_bytes(), 6000u);
    EXPECT_THROW(BudgetedMemory(budget, 4001, "a test"), OutOfMemory);
    EXPECT_EQ(budget.used_bytes(), 6000u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(BudgetedMemory, Moves) {
  MemoryBudget first_budget("first", 100);
  MemoryBudget second_budget("second", 100);
  BudgetedMemory first(first_budget, 60, "a test");
  const auto* address = first.data();
  BudgetedMemory moved(std::move(first));
  EXPECT_EQ(moved.data(), address);
  EXPECT_EQ(first_budget.used_bytes(), 60u);
  {
    BudgetedMemory other(second_budget, 30, "a test");
    other = std::move(moved);
    EXPECT_EQ(other.data(), address);
    moved = BudgetedMemory();
    EXPECT_EQ(first_budget.used_bytes(), 60u);
    EXPECT_EQ(second_budget.used_bytes(), 0u);
  }
  EXPECT_EQ(first_budget.used_bytes(), 0u);
}

TEST(BudgetedMemory, GivesBackWhatTheSystemRefuses) {
  constexpr auto kTooMuch = std::numeric_limits<std::size_t>::max() / 2;
  MemoryBudget budget("DRAM", kTooMuch);
  EXPECT_THROW(BudgetedMemory(budget, kTooMuch, "a test"), OutOfMemory);
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(BudgetedMemory, MayBeEmpty) {
  MemoryBudget budget("DRAM", 0);
  const BudgetedMemory memory(budget, 0, "a test");
  EXPECT_EQ(memory.data(), nullptr);
  EXPECT_TRUE(BudgetedMemory().bytes().empty());
}

}  // namespace
}  // namespace stagecoach
