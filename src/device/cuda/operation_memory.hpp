#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "device/cuda/cuda_stream.hpp"
#include "device/cuda/operation.hpp"
#include "device/cuda/pinned_memory.hpp"
#include "device/cuda/transfer_ring.hpp"
#include "device/device.hpp"

namespace stagecoach::device::cuda {

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

/// Scratch, uploads and downloads of a device's operations. They share one scratch, so operations
/// of several streams are ordered one after the other.
class OperationMemory {
 public:
  /// `device_memory`: device_bytes() of it, aligned to kOperationAlignment. Throws OutOfMemory,
  /// CudaError.
  OperationMemory(const OperationLayout& layout, std::byte* device_memory, int device_index,
                  const std::shared_ptr<PinnedRanges>& ranges);

  /// Calls `work` with an operation of `stream`, for CudaStream::issue. Throws what `work` throws,
  /// JobAborted, CudaError.
  void operate(CudaStream& stream, const std::function<void(Operation&)>& work);

  [[nodiscard]] bool pinned() const noexcept { return upload_.pinned() && download_.pinned(); }

 private:
  class Issued;

  std::mutex mutex_;
  std::byte* scratch_;
  std::byte* uploaded_;
  PinnedBuffer upload_;
  PinnedBuffer download_;
  TransferRing upload_ring_;
  TransferRing download_ring_;
  cudaStream_t last_stream_ = nullptr;
  Event last_operation_;
};

}  // namespace stagecoach::device::cuda
