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
      enqueue([event] { event.wait(); });
    }
  }

  [[nodiscard]] Event record() override {
    auto event = std::make_shared<HostEvent>(name_, abort_);
    queue_.push({nullptr, event});
    return Event(std::move(event));
  }

 private:
  void execute(StreamQueue::Item& item) noexcept {
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
  StreamQueue queue_;    // last: it uses all of the above
};

}  // namespace

std::unique_ptr<Stream> make_host_stream(const std::string& name, AbortSignal& abort,
                                         std::uint64_t delay_seed) {
  return std::make_unique<HostStream>(name, abort, delay_seed);
}

}  // namespace stagecoach::device
