#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>

#include "cuda_runtime_api.h"

namespace cuda_standin {

/// The device's memory and the host's pinned memory: who has what.
class Memory {
 public:
  static Memory& get();

  cudaError_t allocate(int device, std::size_t size_bytes, void** memory);
  cudaError_t free(void* memory);
  cudaError_t allocate_pinned(std::size_t size_bytes, void** memory);
  cudaError_t free_pinned(void* memory);
  cudaError_t pin(void* memory, std::size_t size_bytes);
  cudaError_t unpin(void* memory);

  [[nodiscard]] std::size_t used_bytes(int device);

  enum class Place { device, pinned, pageable, beyond };
  /// Where the bytes lie; `beyond`: they begin in the device's memory, but not all are in one
  /// allocation. Freed memory is nowhere.
  [[nodiscard]] Place place(const void* memory, std::size_t size_bytes);
  /// The device an address belongs to; -1: none.
  [[nodiscard]] int device_of(const void* memory);

  /// std::logic_error if something is still allocated or pinned.
  void restart();

 private:
  struct Piece {
    std::size_t size_bytes = 0;
    int device = 0;
    bool ours = false;  ///< pinned memory: allocated here
  };
  using Pieces = std::map<const std::byte*, Piece>;
  static Pieces::iterator find(Pieces& pieces, const void* memory);
  void forget_oldest();

  std::mutex mutex_;
  Pieces device_;
  Pieces pinned_;
  std::size_t pinned_bytes_ = 0;
  std::deque<std::pair<std::byte*, std::size_t>> freed_;  ///< poison that stays readable a while
};

}  // namespace cuda_standin
