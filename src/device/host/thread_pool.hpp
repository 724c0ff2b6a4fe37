#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace stagecoach::device {

/// Threads that share one loop at a time with its caller. Between loops they spin for some
/// microseconds and then sleep, because several ranks may share the cores.
class ThreadPool {
 public:
  /// `threads` counts the caller: 1 makes no thread.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ThreadPool(ThreadPool&&) = delete;
  ThreadPool& operator=(ThreadPool&&) = delete;
  ~ThreadPool();

  [[nodiscard]] int threads() const noexcept { return static_cast<int>(workers_.size()) + 1; }

  /// Calls `body(index, worker)` for each index in [0, count), in no order, and returns when all
  /// have ended. `worker` is in [0, threads()) and 0 is the caller; no two calls with one worker
  /// run at once. The first exception stops the loop and is thrown here. Loops of several callers
  /// follow one another; a body must not start another one.
  template <typename Body>
  void parallel_for(std::int64_t count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(count, Loop{[](void* context, std::int64_t index, int worker) {
                      (*static_cast<Plain*>(context))(index, worker);
                    },
                    const_cast<void*>(static_cast<const void*>(std::addressof(body)))});
  }

 private:
  struct Loop {
    void (*call)(void* context, std::int64_t index, int worker) = nullptr;
    void* context = nullptr;
  };

  void run(std::int64_t count, Loop loop);
  void run_share(const Loop& loop, int worker) noexcept;
  void work(int worker) noexcept;
  bool enter() noexcept;
  void leave() noexcept;

  std::mutex callers_;
  Loop loop_;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_{0};
  // Bit 0: the loop takes workers in; the rest: twice the number of workers inside.
  std::atomic<std::uint32_t> inside_{0};
  // Grows with every loop: what sleeping workers wait for.
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<bool> stop_{false};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::vector<std::thread> workers_;
};

}  // namespace stagecoach::device
