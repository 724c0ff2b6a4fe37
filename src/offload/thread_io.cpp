#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "offload/io_transfer.hpp"

namespace stagecoach::offload {
namespace {

std::exception_ptr carry_out(const IoRequest& request) noexcept {
  try {
    transfer_now(request);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

class ThreadIo final : public AsyncIo {
 public:
  explicit ThreadIo(int threads) : depth_(static_cast<std::size_t>(threads)) {
    for (std::size_t i = 0; i < depth_; ++i) {
      threads_.emplace_back([this] { run(); });
    }
  }
  ThreadIo(const ThreadIo&) = delete;
  ThreadIo& operator=(const ThreadIo&) = delete;
  ThreadIo(ThreadIo&&) = delete;
  ThreadIo& operator=(ThreadIo&&) = delete;

  ~ThreadIo() override {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_all();
    for (auto& thread : threads_) {
      thread.join();
    }
  }

  void submit(const IoRequest& request, IoDone done) override {
    {
      std::unique_lock lock(mutex_);
      ended_.wait(lock, [this] { return in_flight_ < depth_; });
      ++in_flight_;
      jobs_.push_back({request, std::move(done)});
    }
    arrived_.notify_one();
  }

  [[nodiscard]] std::string description() const override {
    return fmt::format("{} threads", depth_);
  }

 private:
  struct Job {
    IoRequest request;
    IoDone done;
  };

  // False when closed and empty.
  bool take(Job& job) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return closed_ || !jobs_.empty(); });
    if (jobs_.empty()) {
      return false;
    }
    job = std::move(jobs_.front());
    jobs_.pop_front();
    return true;
  }

  void run() {
    for (Job job; take(job);) {
      job.done(carry_out(job.request));
      {
        const std::lock_guard lock(mutex_);
        --in_flight_;
      }
      ended_.notify_one();
    }
  }

  const std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable ended_;
  std::deque<Job> jobs_;
  std::size_t in_flight_ = 0;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<AsyncIo> make_thread_io(int threads) {
  STAGECOACH_CHECK(threads > 0);
  return std::make_unique<ThreadIo>(threads);
}

}  // namespace stagecoach::offload
