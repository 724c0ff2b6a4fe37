#pragma once

#include <cstddef>
#include <string>

namespace stagecoach {

/// This machine's name.
std::string host_name();

/// CPUs that this process may run on (its affinity mask).
int usable_cpus();

/// CPUs of the machine that are online.
int online_cpus();

/// Bytes of DRAM that this process can still take: MemAvailable, or less where a cgroup (v1 or v2)
/// limits it. A cgroup's page cache counts as free: the kernel gives it up before it refuses
/// memory. `root` goes before /proc and /sys (for tests).
std::size_t available_memory_bytes(const std::string& root = {});

/// The largest resident size that this process has had, in bytes.
std::size_t peak_resident_bytes();

}  // namespace stagecoach
