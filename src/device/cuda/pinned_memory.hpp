#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

#include "base/aligned_memory.hpp"
#include "device/device.hpp"

namespace stagecoach::device::cuda {

/// Which memory of the host is known to be pinned. Safe to use from any thread.
class PinnedRanges {
 public:
  void add(std::span<const std::byte> memory);
  void remove(std::span<const std::byte> memory) noexcept;
  /// Whether all of it lies in one pinned range.
  [[nodiscard]] bool contain(std::span<const std::byte> memory) const;

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::size_t> sizes_;  // by where the range begins
};

/// Pins memory for all GPUs and enters it into `ranges`. Null: the system refuses. Memory that
/// somebody else has pinned stays his, and is not entered. Throws CudaError.
std::unique_ptr<Pinned> pin_memory(std::span<std::byte> memory, int device_index,
                                   const std::shared_ptr<PinnedRanges>& ranges);

/// Memory of the host, pinned where the system allows.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  /// Throws OutOfMemory naming `purpose`, CudaError.
  PinnedBuffer(std::size_t size_bytes, std::string_view purpose, int device_index,
               const std::shared_ptr<PinnedRanges>& ranges);

  [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return memory_.size_bytes(); }
  [[nodiscard]] bool pinned() const noexcept { return pinned_ != nullptr; }

 private:
  AlignedMemory memory_;
  std::unique_ptr<Pinned> pinned_;  // after what it pins
};

}  // namespace stagecoach::device::cuda
