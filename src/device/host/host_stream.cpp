#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "device/host/host_device.hpp"
#include "device/host/host_event.hpp"

namespace stagecoach::device {
namespace {

class HostStream final : public Stream {
 public:
  HostStream(std::string name, AbortSignal& abort)
      : name_(std::move(name)), abort_(abort), thread_([this] { run(); }) {
    pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
  }
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;
  HostStream(HostStream&&) = delete;
  HostStream& operator=(HostStream&&) = delete;

  ~HostStream() override {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_one();
    thread_.join();
  }

  void enqueue(std::function<void()> work) override { push({std::move(work), nullptr}); }

  void wait(const Event& event) override {
    if (!event.passed()) {
      enqueue([event] { event.wait(); });
    }
  }

  [[nodiscard]] Event record() override {
    auto event = std::make_shared<HostEvent>(name_, abort_);
    push({nullptr, event});
    return Event(std::move(event));
  }

 private:
  // Work, or the event that marks its place.
  struct Item {
    std::function<void()> work;
    std::shared_ptr<HostEvent> event;
  };

  void push(Item item) {
    {
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    arrived_.notify_one();
  }

  // False when the stream is closed and empty.
  bool pop(Item& item) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return closed_ || !items_.empty(); });
    if (items_.empty()) {
      return false;
    }
    item = std::move(items_.front());
    items_.pop_front();
    return true;
  }

  void run() noexcept {
    for (;;) {
      Item item;  // destroyed before the next wait: work may own what others wait to see freed
      if (!pop(item)) {
        return;
      }
      execute(item);
    }
  }

  void execute(Item& item) noexcept {
    failed_ = failed_ || abort_.raised();
    if (item.event != nullptr) {
      failed_ ? item.event->drop() : item.event->pass();
      return;
    }
    if (failed_) {
      return;
    }
    try {
      item.work();
    } catch (...) {
      failed_ = true;
      abort_.raise(std::current_exception());
    }
  }

  const std::string name_;
  AbortSignal& abort_;
  bool failed_ = false;  // of the stream's own thread
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Item> items_;
  bool closed_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<Stream> make_host_stream(const std::string& name, AbortSignal& abort) {
  return std::make_unique<HostStream>(name, abort);
}

}  // namespace stagecoach::device
