#include "base/abort_signal.hpp"

#include <utility>

#include "base/error.hpp"

namespace stagecoach {

void AbortSignal::raise(std::exception_ptr cause) noexcept {
  const std::lock_guard lock(mutex_);
  if (cause_ == nullptr) {
    cause_ = std::move(cause);
    raised_.store(true, std::memory_order_release);
  }
}

std::exception_ptr AbortSignal::cause() const noexcept {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void AbortSignal::throw_if_raised() const {
  if (raised()) {
    throw JobAborted("the job was stopped by a failure elsewhere");
  }
}

}  // namespace stagecoach
