#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "base/memory_budget.hpp"

namespace stagecoach::device::cuda {

/// A GPU's memory, taken at once and given out in pieces. Safe to use from any thread.
class Arena {
 public:
  /// Where pieces begin. The arena has `kRoundingBytes` beside its limit, so that pieces fit
  /// whenever the sum of their sizes does, for as long as there are no more than
  /// kRoundingBytes / kAlignment of them and none was freed among them.
  static constexpr std::size_t kAlignment = 256;
  static constexpr std::size_t kRoundingBytes = std::size_t{1} << 20;

  /// `name` stands in messages ("cuda:0's memory"). `limit_bytes` 0: no memory at all. Throws
  /// OutOfMemory with what the GPU has free, CudaError.
  Arena(const std::string& name, int device_index, std::size_t limit_bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena(Arena&&) = delete;
  Arena& operator=(Arena&&) = delete;
  /// No stream may use it any more.
  ~Arena();

  /// Null for no bytes. Throws OutOfMemory naming the arena, `purpose`, what is asked, what is used
  /// and the limit.
  [[nodiscard]] std::byte* allocate(std::size_t size_bytes, const std::string& purpose);
  void release(std::byte* data, std::size_t size_bytes) noexcept;

  [[nodiscard]] std::size_t used_bytes() const { return budget_.used_bytes(); }
  [[nodiscard]] std::size_t peak_bytes() const { return budget_.peak_bytes(); }

 private:
  using Pieces = std::map<std::size_t, std::size_t>;  // size by offset

  const std::string name_;
  const int device_index_;
  MemoryBudget budget_;
  std::mutex mutex_;
  std::byte* data_ = nullptr;
  Pieces free_;  // no two of them touch
  Pieces used_;  // their nodes become free ones, so that freeing needs no memory
};

}  // namespace stagecoach::device::cuda
