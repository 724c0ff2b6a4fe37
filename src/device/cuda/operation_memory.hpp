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
