#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace stagecoach {

/// Keeps memory from being paged out while it lives, and must not outlive that memory. Locks of one
/// page do not count: the first that ends unlocks it.
class MemoryLock {
 public:
  /// Locks the pages that `bytes` touches; nothing when the system refuses (see lockable_bytes).
  [[nodiscard]] static std::optional<MemoryLock> try_lock(std::span<std::byte> bytes);

  MemoryLock(MemoryLock&& other) noexcept;
  MemoryLock& operator=(MemoryLock&& other) noexcept;
  MemoryLock(const MemoryLock&) = delete;
  MemoryLock& operator=(const MemoryLock&) = delete;
  ~MemoryLock();

  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_.size(); }

 private:
  explicit MemoryLock(std::span<std::byte> bytes) noexcept : bytes_(bytes) {}

  std::span<std::byte> bytes_;
};

/// Bytes that this process may still lock: what RLIMIT_MEMLOCK leaves, or the largest number where
/// it is unlimited or does not apply (CAP_IPC_LOCK). `root` goes before /proc (for tests).
std::size_t lockable_bytes(const std::string& root = {});

}  // namespace stagecoach
