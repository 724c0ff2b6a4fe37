#pragma once

#include <condition_variable>
#include <mutex>
#include <string>

#include "base/abort_signal.hpp"
#include "device/stream.hpp"

namespace stagecoach::device {

/// An event that a thread of this process passes or drops.
class HostEvent final : public Event::State {
 public:
  /// `stream` is named in errors.
  HostEvent(std::string stream, const AbortSignal& abort)
      : stream_(std::move(stream)), abort_(abort) {}

  [[nodiscard]] bool passed() const override;
  /// Throws JobAborted when the event was dropped, or is pending once the signal is raised.
  void wait() const override;

  void pass() { set(State::passed); }
  void drop() { set(State::dropped); }

 private:
  enum class State { pending, passed, dropped };

  void set(State state);

  const std::string stream_;
  const AbortSignal& abort_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  State state_ = State::pending;
};

}  // namespace stagecoach::device
