#include "base/system.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <optional>
#include <sstream>
#include <string_view>

namespace stagecoach {
namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

/// The names of the memory controller's files.
struct CgroupFiles {
  const char* limit;
  const char* used;
  const char* inactive_file;
  const char* active_file;
};
constexpr CgroupFiles kVersion1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                   "total_inactive_file", "total_active_file"};
constexpr CgroupFiles kVersion2 = {"/memory.max", "/memory.current", "inactive_file",
                                   "active_file"};

std::optional<std::size_t> read_number(const std::string& path) {
  std::ifstream in(path);
  std::size_t value = 0;
  if (in >> value) {
    return value;
  }
  return std::nullopt;  // no such file, or the word "max"
}

/// The sum of the values of `keys` in a file of "key value" lines.
std::size_t sum_of_keys(const std::string& path, std::initializer_list<std::string_view> keys) {
  std::ifstream in(path);
  std::size_t sum = 0;
  std::string key;
  for (std::size_t value = 0; in >> key >> value;) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) {
      sum += value;
    }
  }
  return sum;
}

/// What the limit of one cgroup leaves.
std::size_t left_in_cgroup(const std::string& folder, const CgroupFiles& files) {
  const auto limit = read_number(folder + files.limit);
  const auto used = read_number(folder + files.used);
  if (!limit || !used) {
    return kUnlimited;
  }
  const auto cache = sum_of_keys(folder + "/memory.stat", {files.inactive_file, files.active_file});
  const auto kept = *used > cache ? *used - cache : 0;
  return *limit > kept ? *limit - kept : 0;
}

/// The tightest limit on the way from the cgroup `path` up to the root of its hierarchy. In a
/// container, folders near the end of the path may not be visible; its root is the container's own.
std::size_t left_on_path(const std::string& hierarchy, std::string path, const CgroupFiles& files) {
  std::size_t left = left_in_cgroup(hierarchy, files);
  while (!path.empty() && path != "/") {
    left = std::min(left, left_in_cgroup(hierarchy + path, files));
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
  return left;
}

/// Lines of /proc/self/cgroup are "id:controllers:path"; version 2 names no controllers.
std::size_t left_in_cgroups(const std::string& root) {
  std::size_t left = kUnlimited;
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string id;
    std::string controllers;
    std::string path;
    std::getline(fields, id, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    if (controllers.empty()) {
      left = std::min(left, left_on_path(root + "/sys/fs/cgroup", path, kVersion2));
    } else if ((',' + controllers + ',').find(",memory,") != std::string::npos) {
      left = std::min(left, left_on_path(root + "/sys/fs/cgroup/memory", path, kVersion1));
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

std::vector<int> usable_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) {
        cpus.push_back(cpu);
      }
    }
  } else {  // more CPUs than a cpu_set_t holds
    cpus.resize(static_cast<std::size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))));
    std::iota(cpus.begin(), cpus.end(), 0);
  }
  return cpus;
}

std::size_t available_memory_bytes(const std::string& root) {
  std::size_t available = kUnlimited;
  std::ifstream in(root + "/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string key;
    std::size_t kibibytes = 0;
    if (fields >> key >> kibibytes && key == "MemAvailable:") {
      available = kibibytes * 1024;
    }
  }
  return std::min(available, left_in_cgroups(root));
}

std::size_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

}  // namespace stagecoach
