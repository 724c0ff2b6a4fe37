#pragma once

#include <memory>
#include <string>

#include "base/abort_signal.hpp"
#include "device/device.hpp"

namespace stagecoach::device {

struct HostDeviceOptions {
  int threads = 1;           ///< that compute one operation, the stream's own included (>= 1)
  std::string isa = "auto";  ///< "auto", "avx2" or "avx512": the widest instructions to use
};

/// The CPU as a device: oneDNN for products, Google Highway for the rest. `abort` must outlive it.
/// ConfigError if the CPU lacks `isa` or AVX2 altogether.
std::unique_ptr<Device> make_host_device(const HostDeviceOptions& options, AbortSignal& abort);

/// A FIFO thread without a device: for sends, receives and disk. `abort` must outlive it.
std::unique_ptr<Stream> make_host_stream(const std::string& name, AbortSignal& abort);

}  // namespace stagecoach::device
