#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/abort_signal.hpp"
#include "device/device.hpp"

namespace stagecoach::device {

struct HostDeviceOptions {
  int threads = 1;               ///< that compute one operation, the stream's own included (>= 1)
  std::string isa = "auto";      ///< "auto", "avx2" or "avx512": of this device alone, not its bits
  std::size_t memory_bytes = 0;  ///< the arena: what goes past it is OutOfMemory; 0: no limit
  bool host_addressable = true;  ///< false, for tests: callers must copy, as to and from a GPU
  std::uint64_t delay_seed = 0;  ///< of its streams, for tests: see make_host_stream
};

/// The CPU as a device, with kernels in Google Highway. Every operation gives the same bits for any
/// `threads` and `isa`. `abort` must outlive the device, its streams and their events. ConfigError
/// if the CPU lacks `isa`, or AVX2 altogether, or `threads` < 1.
std::unique_ptr<Device> make_host_device(const HostDeviceOptions& options, AbortSignal& abort);

/// A FIFO thread without a device: for sends, receives and disk. Once `abort` is raised, by its own
/// work or elsewhere, what it has not begun is dropped and waits for it throw JobAborted. `abort`
/// must outlive the stream and its events. With a `delay_seed` that is not 0 it sleeps before some
/// items, up to 200 us, so that tests see other interleavings; the same ones for one seed and name.
std::unique_ptr<Stream> make_host_stream(const std::string& name, AbortSignal& abort,
                                         std::uint64_t delay_seed = 0);

}  // namespace stagecoach::device
