#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/abort_signal.hpp"
#include "device/device.hpp"

namespace stagecoach::device {

struct CudaDeviceOptions {
  int index = 0;                 ///< of cuda_devices()
  std::size_t memory_bytes = 0;  ///< the arena, taken at once; 0: none, for planning
  std::uint64_t delay_seed =
      0;  ///< of the threads that issue its streams' work: see make_host_stream
};

/// A GPU as a device. One arena holds everything but CUDA's own context. Work of a stream is issued
/// by a thread of its own, so a caller never waits, and a stream may wait for events of host
/// streams and they for its. Copies to and from pinned memory (Device::pin, CUDA's own) run beside
/// the host; others pass through a ring of pinned buffers, by the stream's thread.
///
/// `abort` must outlive the device, its streams and events. ConfigError if there is no such GPU;
/// OutOfMemory if the GPU has not that much free; CudaError otherwise. A build without CUDA throws
/// a ConfigError that says how to get it.
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options, AbortSignal& abort);

}  // namespace stagecoach::device
