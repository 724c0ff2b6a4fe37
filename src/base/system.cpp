#include "base/system.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace stagecoach {
namespace {

std::optional<std::size_t> read_number(const std::string& path) {
  std::ifstream in(path);
  unsigned long long value = 0;
  if (in >> value) {
    return static_cast<std::size_t>(value);
  }
  return std::nullopt;
}

std::size_t left_under(std::optional<std::size_t> limit, std::optional<std::size_t> used) {
  if (!limit || !used) {
    return std::numeric_limits<std::size_t>::max();
  }
  return *limit > *used ? *limit - *used : 0;
}

/// The tightest limit on the way from this process's cgroup up to the root of its hierarchy.
std::size_t cgroup_memory_left() {
  std::size_t left = std::numeric_limits<std::size_t>::max();
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string id, controllers, path;
    std::getline(fields, id, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    const bool v2 = controllers.empty();
    if (!v2 && controllers.find("memory") == std::string::npos) {
      continue;
    }
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    while (true) {
      const std::string folder = root + (path == "/" ? "" : path);
      left = std::min(left, left_under(read_number(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes")),
                                       read_number(folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes"))));
      if (path.empty() || path == "/") {
        break;
      }
      path.resize(path.find_last_of('/'));
    }
  }
  return left;
}

}  // namespace

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) {
    return "unknown";
  }
  return name;
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) {
    return online_cpus();
  }
  return std::max(1, CPU_COUNT(&set));
}

int online_cpus() { return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))); }

std::size_t available_memory_bytes() {
  std::size_t available = std::numeric_limits<std::size_t>::max();
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string key;
    std::size_t kibibytes = 0;
    if (fields >> key >> kibibytes && key == "MemAvailable:") {
      available = kibibytes * 1024;
    }
  }
  return std::min(available, cgroup_memory_left());
}

std::size_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

}  // namespace stagecoach
