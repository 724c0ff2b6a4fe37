#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "device/host/host_event.hpp"

namespace stagecoach::device {

/// For tests: how a queue's thread sleeps before items, the same way for one seed and name.
struct StreamDelays {
  std::uint64_t seed = 0;    ///< 0: never
  std::uint64_t one_in = 1;  ///< of so many items one is slept before
  std::uint64_t most_microseconds = 0;
};

/// The FIFO under a stream of the host, and the thread that takes its items in turn.
class StreamQueue {
 public:
  /// Work, or the event that marks a place.
  struct Item {
    std::function<void()> work;
    std::shared_ptr<HostEvent> event;
    bool waits = false;  ///< the work is but a wait for other streams
  };

  /// `execute` gets every item, on the queue's thread, and must not throw; `at_end`, if any, is
  /// called there after the last one.
  StreamQueue(const std::string& name, const StreamDelays& delays,
              std::function<void(Item&)> execute, std::function<void()> at_end = nullptr);
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;
  StreamQueue(StreamQueue&&) = delete;
  StreamQueue& operator=(StreamQueue&&) = delete;
  /// Waits until every item has been taken.
  ~StreamQueue();

  void push(Item item);

 private:
  bool pop(Item& item);
  void run() noexcept;
  void sleep();

  const StreamDelays delays_;
  const std::uint64_t delay_state_;
  std::uint64_t items_slept_for_ = 0;
  const std::function<void(Item&)> execute_;
  const std::function<void()> at_end_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Item> items_;
  bool closed_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace stagecoach::device
