#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace stagecoach {

inline constexpr std::size_t kPageBytes = 4096;

/// Rounds `value` up to a multiple of `step` (> 0).
constexpr std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

/// Page-aligned, zeroed memory, taken (touched) when constructed and unmapped by the destructor.
class AlignedMemory {
 public:
  AlignedMemory() noexcept = default;
  /// Throws OutOfMemory naming `purpose` when the system refuses. `size_bytes` may be 0.
  AlignedMemory(std::size_t size_bytes, std::string_view purpose);
  AlignedMemory(AlignedMemory&& other) noexcept;
  AlignedMemory& operator=(AlignedMemory&& other) noexcept;
  AlignedMemory(const AlignedMemory&) = delete;
  AlignedMemory& operator=(const AlignedMemory&) = delete;
  ~AlignedMemory();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_bytes_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace stagecoach
