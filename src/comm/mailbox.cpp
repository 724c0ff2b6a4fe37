#include "comm/mailbox.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace stagecoach::comm {

void Mailbox::put(std::span<const std::byte> message) {
  // Copied outside the lock: a long message must not hold up the reader of the one before.
  std::list<std::vector<std::byte>> node;
  node.emplace_back(message.begin(), message.end());
  {
    const std::lock_guard lock(mutex_);
    messages_.splice(messages_.end(), node);
  }
  arrived_.notify_one();
}

std::vector<std::byte> Mailbox::take(const Patience& patience) {
  // The abort signal cannot notify, so waits are cut into pauses that nobody notices.
  constexpr std::chrono::milliseconds kPause{20};
  std::unique_lock lock(mutex_);
  while (messages_.empty()) {
    patience.check();
    const auto pause_end = std::chrono::steady_clock::now() + kPause;
    arrived_.wait_until(lock, std::min(patience.deadline(), pause_end));
  }
  auto message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

}  // namespace stagecoach::comm
