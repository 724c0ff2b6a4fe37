#include "base/pinned_memory.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

namespace stagecoach {
namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

/// What the lock limit depends on, from /proc/self/status.
struct LockStatus {
  std::size_t locked_bytes = 0;
  bool capable = false;  // has CAP_IPC_LOCK
};

LockStatus read_status(const std::string& root) {
  constexpr unsigned kCapIpcLock = 14;
  LockStatus status;
  std::ifstream in(root + "/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string key;
    fields >> key;
    if (key == "VmLck:") {
      std::size_t kibibytes = 0;
      fields >> kibibytes;
      status.locked_bytes = kibibytes * 1024;
    } else if (key == "CapEff:") {
      std::uint64_t capabilities = 0;
      fields >> std::hex >> capabilities;
      status.capable = (capabilities >> kCapIpcLock & 1) != 0;
    }
  }
  return status;
}

/// Elsewhere, as in containers without root, the kernel does not heed capabilities for locks.
bool in_first_user_namespace(const std::string& root) {
  std::ifstream in(root + "/proc/self/uid_map");
  std::uint64_t inside = 0;
  std::uint64_t outside = 0;
  std::uint64_t count = 0;
  return !(in >> inside >> outside >> count) ||
         (inside == 0 && outside == 0 && count == std::numeric_limits<std::uint32_t>::max());
}

}  // namespace

std::optional<MemoryLock> MemoryLock::try_lock(std::span<std::byte> bytes) {
  if (!bytes.empty() && ::mlock(bytes.data(), bytes.size()) != 0) {
    return std::nullopt;
  }
  return MemoryLock(bytes);
}

MemoryLock::MemoryLock(MemoryLock&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MemoryLock& MemoryLock::operator=(MemoryLock&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryLock::~MemoryLock() {
  if (!bytes_.empty()) {
    ::munlock(bytes_.data(), bytes_.size());
  }
}

std::size_t lockable_bytes(const std::string& root) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return kUnlimited;
  }
  const auto status = read_status(root);
  if (status.capable && in_first_user_namespace(root)) {
    return kUnlimited;
  }
  const auto limit_bytes = static_cast<std::size_t>(limit.rlim_cur);
  return limit_bytes > status.locked_bytes ? limit_bytes - status.locked_bytes : 0;
}

}  // namespace stagecoach
