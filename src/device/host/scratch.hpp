#pragma once

#include <cstddef>
#include <cstdint>

#include "base/aligned_memory.hpp"
#include "base/memory_budget.hpp"

namespace stagecoach::device {

/// Memory that operations use while they run, taken once from `budget`, which must outlive it: a
/// part of each worker and a shared one.
class Scratch {
 public:
  Scratch() = default;
  Scratch(MemoryBudget& budget, std::int64_t worker_floats, int workers, std::int64_t shared_floats)
      : worker_floats_(rounded(worker_floats)),
        memory_(budget, size_bytes(worker_floats, workers, shared_floats),
                "the operations' scratch"),
        workers_(workers) {}

  static std::size_t size_bytes(std::int64_t worker_floats, int workers,
                                std::int64_t shared_floats) {
    return static_cast<std::size_t>(rounded(worker_floats) * workers + rounded(shared_floats)) *
           sizeof(float);
  }

  [[nodiscard]] bool empty() const { return memory_.data() == nullptr; }
  [[nodiscard]] float* of_worker(int worker) const { return floats() + worker * worker_floats_; }
  [[nodiscard]] float* shared() const { return floats() + workers_ * worker_floats_; }

 private:
  // Whole pages, so that workers share no cache line.
  static std::int64_t rounded(std::int64_t count) {
    return static_cast<std::int64_t>(
        round_up(static_cast<std::size_t>(count), kPageBytes / sizeof(float)));
  }
  [[nodiscard]] float* floats() const { return reinterpret_cast<float*>(memory_.data()); }

  std::int64_t worker_floats_ = 0;
  BudgetedMemory memory_;
  std::int64_t workers_ = 0;
};

}  // namespace stagecoach::device
