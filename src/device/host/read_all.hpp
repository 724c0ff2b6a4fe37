#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/host/thread_pool.hpp"

namespace stagecoach::device {

/// Reads every byte once, as fast as memory gives them: a yardstick. Returns a sum, to be kept so
/// that the reading is. `bytes` are page-aligned; what is no whole run of 256 is left out. Needs
/// AVX2, as host devices do.
std::uint64_t read_all(std::span<const std::byte> bytes);
/// The same by all threads, a part each.
std::uint64_t read_all(std::span<const std::byte> bytes, ThreadPool& pool);

}  // namespace stagecoach::device
