#include "device/host/host_event.hpp"

#include <chrono>

#include "base/error.hpp"

namespace stagecoach::device {
namespace {

// How soon a wait sees a failure elsewhere: nobody notifies it.
constexpr auto kAbortPoll = std::chrono::milliseconds(20);

}  // namespace

bool HostEvent::passed() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::passed;
}

void HostEvent::wait() const {
  std::unique_lock lock(mutex_);
  while (state_ == State::pending && !abort_.raised()) {
    changed_.wait_for(lock, kAbortPoll);
  }
  if (state_ != State::passed) {
    throw JobAborted(fmt::format(
        "stream '{}' stopped before the point that was waited for: the job failed", stream_));
  }
}

void HostEvent::set(State state) {
  {
    const std::lock_guard lock(mutex_);
    state_ = state;
  }
  changed_.notify_all();
}

}  // namespace stagecoach::device
