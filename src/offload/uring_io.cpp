#include <liburing.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "offload/io_transfer.hpp"

namespace stagecoach::offload {
namespace {

constexpr int kMostRetries = 5000;
constexpr auto kRetryPause = std::chrono::milliseconds(1);

[[noreturn]] void throw_refused(int error) {
  throw IoError(
      fmt::format("io_uring refused: {}{}", std::strerror(error),
                  error == ENOMEM ? " (raise the limit of locked memory, ulimit -l)" : ""));
}

// The rings shared with the kernel. push() from any thread, pop() from one.
class Ring {
 public:
  explicit Ring(int depth) {
    const int result = ::io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0);
    if (result < 0) {
      throw_refused(-result);
    }
    if (!has_operations()) {
      ::io_uring_queue_exit(&ring_);
      throw_refused(ENOSYS);
    }
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  Ring(Ring&&) = delete;
  Ring& operator=(Ring&&) = delete;
  ~Ring() { ::io_uring_queue_exit(&ring_); }

  // Hands `transfer` to the kernel, or only something that makes pop() return without one. Returns
  // 0, or the error number of a kernel that did not take it.
  int push(const IoTransfer* transfer, void* tag) {
    const std::lock_guard lock(push_mutex_);
    auto* entry = ::io_uring_get_sqe(&ring_);
    if (entry == nullptr) {
      (void)flush();  // what an earlier failure left there
      return EBUSY;
    }
    transfer != nullptr ? prepare(*transfer, entry) : ::io_uring_prep_nop(entry);
    ::io_uring_sqe_set_data(entry, tag);
    pushes_.fetch_add(1, std::memory_order_release);
    const int error = flush();
    if (error != 0) {
      // It stays in the ring, and must do no harm when it is taken later.
      ::io_uring_prep_nop(entry);
      ::io_uring_sqe_set_data(entry, nullptr);
    }
    return error;
  }

  // Waits for an answer; nullptr for one that is nobody's.
  void* pop(std::int64_t& answer) {
    ::io_uring_cqe* entry = nullptr;
    if (::io_uring_wait_cqes(&ring_, &entry, 1, nullptr, nullptr) < 0) {
      std::this_thread::sleep_for(kRetryPause);  // a signal: there is no other way than to wait on
      return nullptr;
    }
    (void)pushes_.load(std::memory_order_acquire);
    void* tag = ::io_uring_cqe_get_data(entry);
    answer = entry->res;
    ::io_uring_cqe_seen(&ring_, entry);
    return tag;
  }

 private:
  bool has_operations() {
    auto* probe = ::io_uring_get_probe_ring(&ring_);
    const bool has = probe != nullptr && ::io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                     ::io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
    if (probe != nullptr) {
      ::io_uring_free_probe(probe);
    }
    return has;
  }

  static void prepare(const IoTransfer& transfer, ::io_uring_sqe* entry) {
    const auto size = static_cast<unsigned>(transfer.size_bytes());
    if (transfer.write()) {
      ::io_uring_prep_write(entry, transfer.descriptor(), transfer.data(), size, transfer.offset());
    } else {
      ::io_uring_prep_read(entry, transfer.descriptor(), transfer.data(), size, transfer.offset());
    }
  }

  int flush() {
    for (int retries = 0; ::io_uring_sq_ready(&ring_) > 0;) {
      const int result = ::io_uring_submit(&ring_);
      const bool passing = result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY;
      if (!passing || (result <= 0 && ++retries > kMostRetries)) {
        return result < 0 ? -result : EAGAIN;
      }
      if (result <= 0) {
        std::this_thread::sleep_for(kRetryPause);
      }
    }
    return 0;
  }

  ::io_uring ring_{};
  std::mutex push_mutex_;
  // Orders push() before pop() for C++, which knows nothing of the order that the kernel gives.
  std::atomic<unsigned> pushes_{0};
};

class UringIo final : public AsyncIo {
 public:
  explicit UringIo(int depth) : depth_(depth), ring_(depth), reaper_([this] { reap(); }) {}
  UringIo(const UringIo&) = delete;
  UringIo& operator=(const UringIo&) = delete;
  UringIo(UringIo&&) = delete;
  UringIo& operator=(UringIo&&) = delete;

  ~UringIo() override {
    wait_for_fewer_than(1);
    stopping_ = true;
    while (ring_.push(nullptr, nullptr) != 0) {
    }
    reaper_.join();
  }

  void submit(const IoRequest& request, IoDone done) override {
    wait_for_fewer_than(depth_);
    {
      const std::lock_guard lock(mutex_);
      ++in_flight_;
    }
    start(std::make_unique<Flight>(request, std::move(done)));
  }

  [[nodiscard]] std::string description() const override {
    return fmt::format("io_uring, {} requests", depth_);
  }

 private:
  struct Flight {
    Flight(const IoRequest& request, IoDone on_done)
        : transfer(request), done(std::move(on_done)) {}
    IoTransfer transfer;
    IoDone done;
  };

  void wait_for_fewer_than(int count) {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return in_flight_ < count; });
  }

  void start(std::unique_ptr<Flight> flight) {
    auto* tag = flight.release();  // the reaper's from here on
    const int error = ring_.push(&tag->transfer, tag);
    if (error != 0) {
      advance(std::unique_ptr<Flight>(tag), -error);
    }
  }

  void reap() {
    while (!stopping_) {
      std::int64_t answer = 0;
      std::unique_ptr<Flight> flight(static_cast<Flight*>(ring_.pop(answer)));
      if (flight != nullptr) {
        advance(std::move(flight), answer);
      }
    }
  }

  void advance(std::unique_ptr<Flight> flight, std::int64_t answer) {
    std::exception_ptr error;
    try {
      if (!flight->transfer.advance(answer)) {
        start(std::move(flight));
        return;
      }
    } catch (const IoError&) {
      error = std::current_exception();
    }
    flight->done(error);
    flight.reset();
    const std::lock_guard lock(mutex_);
    --in_flight_;
    ended_.notify_one();
  }

  const int depth_;
  Ring ring_;
  std::mutex mutex_;
  std::condition_variable ended_;
  int in_flight_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread reaper_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<AsyncIo> make_uring_io(int depth) {
  STAGECOACH_CHECK(depth > 0);
  return std::make_unique<UringIo>(depth);
}

}  // namespace stagecoach::offload
