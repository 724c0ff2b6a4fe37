#pragma once

#include <atomic>
#include <exception>
#include <mutex>

namespace stagecoach {

/// The first failure of a job inside one process. Streams and stages raise it; everything that
/// waits looks at it, so that one failure ends every wait. Safe to use from any thread.
class AbortSignal {
 public:
  /// Records `cause` if nothing was recorded before. Never throws.
  void raise(std::exception_ptr cause) noexcept;

  [[nodiscard]] bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }

  /// The first failure, or nullptr.
  [[nodiscard]] std::exception_ptr cause() const noexcept;

  /// Throws JobAborted if raised: for waits of threads that did not fail themselves.
  void throw_if_raised() const;

 private:
  mutable std::mutex mutex_;
  std::exception_ptr cause_;
  std::atomic<bool> raised_{false};
};

}  // namespace stagecoach
