#include "base/memory_budget.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"

namespace stagecoach {

MemoryBudget::MemoryBudget(std::string name, std::size_t limit_bytes)
    : name_(std::move(name)), limit_bytes_(limit_bytes) {}

void MemoryBudget::take(std::size_t bytes, std::string_view purpose) {
  const std::lock_guard lock(mutex_);
  if (bytes > limit_bytes_ - used_bytes_) {
    throw OutOfMemory(fmt::format("cannot take {} of {} for {}: {} of {} are used",
                                  format_bytes(bytes), name_, purpose, format_bytes(used_bytes_),
                                  format_bytes(limit_bytes_)));
  }
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
}

void MemoryBudget::give_back(std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  used_bytes_ -= std::min(bytes, used_bytes_);
}

std::size_t MemoryBudget::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

std::size_t MemoryBudget::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_bytes_;
}

BudgetedMemory::BudgetedMemory(MemoryBudget& budget, std::size_t size_bytes,
                               std::string_view purpose) {
  budget.take(size_bytes, purpose);
  try {
    memory_ = AlignedMemory(size_bytes, purpose);
  } catch (...) {
    budget.give_back(size_bytes);
    throw;
  }
  budget_ = &budget;
}

BudgetedMemory::BudgetedMemory(BudgetedMemory&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), memory_(std::move(other.memory_)) {}

BudgetedMemory& BudgetedMemory::operator=(BudgetedMemory&& other) noexcept {
  std::swap(budget_, other.budget_);
  std::swap(memory_, other.memory_);
  return *this;
}

BudgetedMemory::~BudgetedMemory() {
  if (budget_ != nullptr) {
    const auto size_bytes = memory_.size_bytes();
    memory_ = AlignedMemory();
    budget_->give_back(size_bytes);
  }
}

}  // namespace stagecoach
