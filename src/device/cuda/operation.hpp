#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <span>

#include "device/cuda/operation_bytes.hpp"

namespace stagecoach::device::cuda {

/// One operation of a device while it is issued: where its kernels go, and memory for it. Lives
/// while the operation is issued, on the thread that issues its stream's work.
class Operation {
 public:
  virtual ~Operation() = default;

  [[nodiscard]] virtual cudaStream_t stream() const = 0;

  /// Device memory for what the kernels leave each other; the next operation overwrites it.
  /// `OperationBytes::scratch` of it, aligned to kOperationAlignment.
  [[nodiscard]] virtual std::byte* scratch() const = 0;

  /// Copies to the device, in the stream's order; the device address is good for all kernels of
  /// this operation. `bytes` may go when this returns.
  virtual const std::byte* upload_bytes(std::span<const std::byte> bytes) = 0;
  template <typename T>
  const T* upload(std::span<const T> items) {
    return reinterpret_cast<const T*>(upload_bytes(std::as_bytes(items)));
  }

  /// When the stream has come here, `then` gets a copy of the device's bytes, on some thread,
  /// before later work of the stream runs or its events pass. It must not call CUDA; an exception
  /// raises the job's AbortSignal.
  virtual void download(const void* from, std::size_t size_bytes,
                        std::function<void(const std::byte*)> then) = 0;
};

}  // namespace stagecoach::device::cuda
