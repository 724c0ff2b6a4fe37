#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace stagecoach::comm {

/// Pauses of a polling wait: it yields at first, for messages that are about to come, and sleeps a
/// little longer each time after that, so that the core belongs to whoever computes.
class BackOff {
 public:
  void pause() {
    if (std::chrono::steady_clock::now() < yield_until_) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ * 2, kLongestSleep);
  }

 private:
  static constexpr std::chrono::microseconds kYield{50};
  static constexpr std::chrono::microseconds kFirstSleep{10};
  static constexpr std::chrono::microseconds kLongestSleep{100};

  std::chrono::steady_clock::time_point yield_until_ = std::chrono::steady_clock::now() + kYield;
  std::chrono::microseconds sleep_ = kFirstSleep;
};

}  // namespace stagecoach::comm
