#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace stagecoach {

/// This machine's name.
std::string host_name();

/// Numbers of the CPUs that this process may run on (its affinity mask); at least one.
std::vector<int> usable_cpus();

/// Bytes of DRAM that this process can still take: MemAvailable, or less where a cgroup (v1 or v2)
/// limits it. A cgroup's page cache counts as free: the kernel gives it up before it refuses
/// memory. `root` goes before /proc and /sys (for tests).
std::size_t available_memory_bytes(const std::string& root = {});

/// The largest resident size that this process has had, in bytes.
std::size_t peak_resident_bytes();

}  // namespace stagecoach
