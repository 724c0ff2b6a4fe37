#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/hash.hpp"
#include "device/host/host_device.hpp"
#include "device/host/host_event.hpp"

namespace stagecoach::device {
namespace {

// Random sleeps, most of them none, of one stream's own thread.
class Delays {
 public:
  Delays(std::uint64_t seed, const std::string& name)
      : state_(seed == 0 ? 0 : mix_bits(seed ^ hash_string(name)) | 1) {}

  void sleep() {
    if (state_ == 0) {
      return;
    }
    constexpr std::uint64_t kOneIn = 8;
    constexpr std::uint64_t kMostMicroseconds = 200;
    const auto random = mix_bits(state_ + 2 * count_++);
    if (random % kOneIn == 0) {
      std::this_thread::sleep_for(
          std::chrono::microseconds(random / kOneIn % (kMostMicroseconds + 1)));
    }
  }

 private:
  std::uint64_t state_;  // 0: never
  std::uint64_t count_ = 0;
};

class HostStream final : public Stream {
 public:
  HostStream(std::string name, AbortSignal& abort, std::uint64_t delay_seed)
      : name_(std::move(name)),
        abort_(abort),
        delays_(delay_seed, name_),
        thread_([this] { run(); }) {
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
      delays_.sleep();
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
  Delays delays_;        // of the stream's own thread
  bool failed_ = false;  // likewise
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Item> items_;
  bool closed_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<Stream> make_host_stream(const std::string& name, AbortSignal& abort,
                                         std::uint64_t delay_seed) {
  return std::make_unique<HostStream>(name, abort, delay_seed);
}

}  // namespace stagecoach::device
