#pragma once

#include <memory>
#include <string>

#include "base/abort_signal.hpp"
#include "device/device.hpp"

namespace stagecoach::device {

struct HostDeviceOptions {
  int threads = 1;           ///< that compute one operation, the stream's own included (>= 1)
  std::string isa = "auto";  ///< "auto", "avx2" or "avx512": of this device alone, not its bits
};

/// The CPU as a device, with kernels in Google Highway. Every operation gives the same bits for any
/// `threads` and `isa`. `abort` must outlive the device, its streams and their events. ConfigError
/// if the CPU lacks `isa`, or AVX2 altogether, or `threads` < 1.
std::unique_ptr<Device> make_host_device(const HostDeviceOptions& options, AbortSignal& abort);

/// A FIFO thread without a device: for sends, receives and disk. Once `abort` is raised, by its own
/// work or elsewhere, what it has not begun is dropped and waits for it throw JobAborted. `abort`
/// must outlive the stream and its events.
std::unique_ptr<Stream> make_host_stream(const std::string& name, AbortSignal& abort);

}  // namespace stagecoach::device
