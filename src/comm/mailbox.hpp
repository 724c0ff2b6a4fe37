#pragma once

#include <condition_variable>
#include <cstddef>
#include <list>
#include <mutex>
#include <span>
#include <vector>

#include "comm/patience.hpp"

namespace stagecoach::comm {

/// A queue of messages between threads of one process, in the order of `put`. Any length, no bound.
class Mailbox {
 public:
  /// Copies `message` into the queue. Never blocks.
  void put(std::span<const std::byte> message);

  /// The oldest message, moved out; waits for one as long as `patience` says.
  [[nodiscard]] std::vector<std::byte> take(const Patience& patience);

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::list<std::vector<std::byte>> messages_;
};

}  // namespace stagecoach::comm
