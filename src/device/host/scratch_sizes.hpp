#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device.hpp"

namespace stagecoach::device {

/// Floats of the host operations' scratch: each worker's, and what they share.
std::int64_t host_worker_floats(const ScratchShape& shape);
std::int64_t host_shared_floats(const ScratchShape& shape);
/// Device::scratch_bytes of a host device with so many threads, which need not exist.
std::size_t host_scratch_bytes(const ScratchShape& shape, int threads);

}  // namespace stagecoach::device
