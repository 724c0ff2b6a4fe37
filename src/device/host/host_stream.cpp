#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "device/host/host_device.hpp"
#include "device/host/stream_queue.hpp"

namespace stagecoach::device {
namespace {

// Before one item in eight, and briefly: streams of a device have many.
constexpr std::uint64_t kSleepBeforeOneIn = 8;
constexpr std::uint64_t kMostSleepMicroseconds = 200;

class HostStream final : public Stream {
 public:
  HostStream(std::string name, AbortSignal& abort, std::uint64_t delay_seed)
      : name_(std::move(name)),
        abort_(abort),
        queue_(name_, {delay_seed, kSleepBeforeOneIn, kMostSleepMicroseconds},
               [this](StreamQueue::Item& item) { execute(item); }) {}

  void enqueue(std::function<void()> work) override { queue_.push({std::move(work), nullptr}); }

  void wait(const Event& event) override {
    if (!event.passed()) {
      queue_.push({[event] { event.wait(); }, nullptr, true});
    }
  }

  [[nodiscard]] Event record() override {
    auto event = std::make_shared<HostEvent>(name_, abort_);
    queue_.push({nullptr, event});
    return Event(std::move(event));
  }

  [[nodiscard]] double busy_seconds() const override {
    const std::chrono::nanoseconds busy(busy_nanoseconds_.load(std::memory_order_relaxed));
    return std::chrono::duration<double>(busy).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void execute(StreamQueue::Item& item) noexcept {
    failed_ = failed_ || abort_.raised();
    if (item.event != nullptr) {
      failed_ ? item.event->drop() : item.event->pass();
      return;
    }
    if (failed_) {
      return;
    }
    const auto start = Clock::now();
    try {
      item.work();
    } catch (...) {
      failed_ = true;
      abort_.raise(std::current_exception());
    }
    if (!item.waits) {
      const auto busy = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
      busy_nanoseconds_.fetch_add(busy.count(), std::memory_order_relaxed);
    }
  }

  const std::string name_;
  AbortSignal& abort_;
  std::atomic<std::int64_t> busy_nanoseconds_{0};
  bool failed_ = false;  // of the stream's own thread
  StreamQueue queue_;    // last: it uses all of the above
};

}  // namespace

std::unique_ptr<Stream> make_host_stream(const std::string& name, AbortSignal& abort,
                                         std::uint64_t delay_seed) {
  return std::make_unique<HostStream>(name, abort, delay_seed);
}

}  // namespace stagecoach::device
