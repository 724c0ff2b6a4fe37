#include "device/host/stream_queue.hpp"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "base/hash.hpp"

namespace stagecoach::device {

StreamQueue::StreamQueue(const std::string& name, const StreamDelays& delays,
                         std::function<void(Item&)> execute, std::function<void()> at_end)
    : delays_(delays),
      delay_state_(mix_bits(delays.seed ^ hash_string(name)) | 1),
      execute_(std::move(execute)),
      at_end_(std::move(at_end)),
      thread_([this] { run(); }) {
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

StreamQueue::~StreamQueue() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  arrived_.notify_one();
  thread_.join();
}

void StreamQueue::push(Item item) {
  {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
  }
  arrived_.notify_one();
}

// False when the queue is closed and empty.
bool StreamQueue::pop(Item& item) {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return closed_ || !items_.empty(); });
  if (items_.empty()) {
    return false;
  }
  item = std::move(items_.front());
  items_.pop_front();
  return true;
}

void StreamQueue::run() noexcept {
  for (;;) {
    Item item;  // destroyed before the next wait: work may own what others wait to see freed
    if (!pop(item)) {
      break;
    }
    sleep();
    execute_(item);
  }
  if (at_end_) {
    at_end_();
  }
}

void StreamQueue::sleep() {
  if (delays_.seed == 0) {
    return;
  }
  const auto random = mix_bits(delay_state_ + 2 * items_slept_for_++);
  if (random % delays_.one_in == 0) {
    std::this_thread::sleep_for(
        std::chrono::microseconds(random / delays_.one_in % (delays_.most_microseconds + 1)));
  }
}

}  // namespace stagecoach::device
