#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "base/aligned_memory.hpp"

namespace stagecoach {

/// Bytes of one tier: nothing is taken past its limit. Safe to use from any thread.
class MemoryBudget {
 public:
  /// `name` stands in messages: "cannot take 2.00 GiB of NAME for ...".
  MemoryBudget(std::string name, std::size_t limit_bytes);
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;
  MemoryBudget(MemoryBudget&&) = delete;
  MemoryBudget& operator=(MemoryBudget&&) = delete;
  ~MemoryBudget() = default;

  /// Throws OutOfMemory naming the tier, `purpose`, what is asked, what is used and the limit;
  /// nothing is taken then.
  void take(std::size_t bytes, std::string_view purpose);
  /// What was taken before, or a part of it.
  void give_back(std::size_t bytes) noexcept;

  [[nodiscard]] std::size_t used_bytes() const;
  /// The most that was used at once.
  [[nodiscard]] std::size_t peak_bytes() const;
  [[nodiscard]] std::size_t limit_bytes() const noexcept { return limit_bytes_; }

 private:
  const std::string name_;
  const std::size_t limit_bytes_;
  mutable std::mutex mutex_;
  std::size_t used_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};

/// AlignedMemory that is counted in a budget, which must outlive it.
class BudgetedMemory {
 public:
  BudgetedMemory() noexcept = default;
  /// Throws OutOfMemory naming `purpose` when the budget or the system refuses. `size_bytes` may be
  /// 0.
  BudgetedMemory(MemoryBudget& budget, std::size_t size_bytes, std::string_view purpose);
  BudgetedMemory(BudgetedMemory&& other) noexcept;
  BudgetedMemory& operator=(BudgetedMemory&& other) noexcept;
  BudgetedMemory(const BudgetedMemory&) = delete;
  BudgetedMemory& operator=(const BudgetedMemory&) = delete;
  ~BudgetedMemory();

  [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return memory_.size_bytes(); }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return memory_.bytes(); }

 private:
  MemoryBudget* budget_ = nullptr;
  AlignedMemory memory_;
};

}  // namespace stagecoach
