#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device.hpp"

namespace stagecoach::device::cuda {

// How much memory a GPU's operations take. No CUDA here: a plan for GPUs is made where there is
// none.

/// What the operations of one family need at most, of a ScratchShape.
struct OperationBytes {
  std::size_t scratch = 0;   ///< device memory of one operation
  std::size_t upload = 0;    ///< all uploads of one operation
  std::size_t download = 0;  ///< all downloads of one operation
};

/// Each piece of an operation's scratch, upload or download begins at a multiple of this.
inline constexpr std::size_t kOperationAlignment = 256;

// NVIDIA recommends 32 MiB for sm_90 and 4 MiB for others; with more than a GPU uses nothing is
// lost but memory, and the memory report is the same for every GPU.
inline constexpr std::size_t kProductWorkspaceBytes = std::size_t{32} << 20;
/// Rows whose x is in scratch at once. Enough for a product to be bound by arithmetic.
inline constexpr std::int64_t kProductPieceRows = 512;
/// Tokens that sampling lists of one row at most: what a job may ask for.
inline constexpr std::int64_t kMostListed = 1000;
/// Pieces of a ring for copies of memory that is not pinned; there is a ring each direction.
inline constexpr std::size_t kCopyPieceBytes = std::size_t{2} << 20;
inline constexpr std::size_t kCopyPieces = 4;

/// Scratch of one row of attention: where its pieces lie.
struct RowPieces {
  std::size_t parts = 0;      ///< bytes of its runs' partial results
  std::size_t scores = 0;     ///< bytes
  std::size_t selection = 0;  ///< bytes
  [[nodiscard]] std::size_t total() const { return parts + scores + selection; }
};
/// `scored`: positions that it scores; 0: it is not sparse.
RowPieces row_pieces(std::int64_t heads, std::int64_t head_dim, std::int64_t runs,
                     std::int64_t scored);
/// Runs of so many pages (see attention_work.hpp).
std::int64_t runs_of(std::int64_t pages, std::int64_t page_tokens);

OperationBytes row_operation_bytes(const ScratchShape& shape);
OperationBytes product_bytes(const ScratchShape& shape);
OperationBytes attention_bytes(const ScratchShape& shape);
OperationBytes sample_bytes(const ScratchShape& shape);

/// How the memory for a device's operations is laid out.
struct OperationLayout {
  /// So many operations' uploads and downloads fit, so that the host rarely waits for the GPU.
  static constexpr std::size_t kOperationsAhead = 4;

  std::size_t scratch = 0;   ///< device memory of one operation
  std::size_t upload = 0;    ///< the ring, once on the device and once on the host
  std::size_t download = 0;  ///< the ring, on the host

  /// Of the largest operation of any family.
  static OperationLayout of(const ScratchShape& shape);
  [[nodiscard]] std::size_t device_bytes() const { return scratch + upload; }
  [[nodiscard]] std::size_t host_bytes() const { return upload + download; }
};

/// Device::scratch_bytes and Device::host_scratch_bytes of every GPU.
std::size_t scratch_bytes(const ScratchShape& shape);
std::size_t host_scratch_bytes(const ScratchShape& shape);

}  // namespace stagecoach::device::cuda
