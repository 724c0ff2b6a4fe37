#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include "device/cuda/cuda_stream.hpp"
#include "device/cuda/operation_bytes.hpp"
#include "device/cuda/pinned_memory.hpp"
#include "device/cuda/transfer_ring.hpp"

namespace stagecoach::device::cuda {

/// Copies between a GPU and memory that is not pinned, through pinned rings, one each direction.
/// The host's part runs on the stream's thread, while the GPU copies the piece before. For several
/// streams at once: they take turns.
class StagedCopies {
 public:
  static constexpr std::size_t kPieceBytes = kCopyPieceBytes;
  static constexpr std::size_t kPieces = kCopyPieces;
  static constexpr std::size_t kRingBytes = kPieceBytes * kPieces;

  /// Throws OutOfMemory, CudaError.
  StagedCopies(int device_index, const std::shared_ptr<PinnedRanges>& ranges);

  // For work of CudaStream::issue. Throw JobAborted, CudaError.

  /// When it returns, `from` may change.
  void to_device(CudaStream& stream, std::byte* to, const std::byte* from, std::size_t size_bytes);
  /// When it returns, `to` is filled.
  void to_host(CudaStream& stream, std::byte* to, const std::byte* from, std::size_t size_bytes);

  [[nodiscard]] bool pinned() const noexcept {
    return up_.memory.pinned() && down_.memory.pinned();
  }

 private:
  struct Direction {
    PinnedBuffer memory;
    TransferRing ring{kRingBytes};
    std::mutex mutex;
  };

  Direction up_;
  Direction down_;
};

}  // namespace stagecoach::device::cuda
