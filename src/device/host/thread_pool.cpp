#include "device/host/thread_pool.hpp"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.hpp"

namespace stagecoach::device {
namespace {

constexpr auto kSpin = std::chrono::microseconds(20);

// Waits while `value` is `old`: a short spin, then asleep.
void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) noexcept {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (std::chrono::steady_clock::now() < end) {
    if (value.load(std::memory_order_acquire) != old) {
      return;
    }
    _mm_pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  STAGECOACH_CHECK(threads >= 1, "a pool of {} threads", threads);
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { work(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (auto& worker : workers_) {
    worker.join();
  }
}

void ThreadPool::run(std::int64_t count, Loop loop) {
  if (count <= 0) {
    return;
  }
  const std::lock_guard lock(callers_);
  loop_ = loop;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  const bool shared = count > 1 && !workers_.empty();
  if (shared) {
    inside_.store(1, std::memory_order_release);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  }
  run_share(loop, 0);
  if (shared) {
    // A worker that has not woken up by now is not waited for: it finds the door closed.
    auto inside = inside_.fetch_and(~1u, std::memory_order_acq_rel) & ~1u;
    while (inside != 0) {
      wait_while(inside_, inside);
      inside = inside_.load(std::memory_order_acquire);
    }
  }
  if (auto failure = std::exchange(failure_, nullptr)) {
    std::rethrow_exception(std::move(failure));
  }
}

void ThreadPool::run_share(const Loop& loop, int worker) noexcept {
  try {
    for (auto index = next_.fetch_add(1, std::memory_order_relaxed); index < count_;
         index = next_.fetch_add(1, std::memory_order_relaxed)) {
      loop.call(loop.context, index, worker);
    }
  } catch (...) {
    next_.store(count_, std::memory_order_relaxed);
    const std::lock_guard lock(failure_mutex_);
    if (failure_ == nullptr) {
      failure_ = std::current_exception();
    }
  }
}

void ThreadPool::work(int worker) noexcept {
  std::uint32_t seen = 0;
  for (;;) {
    wait_while(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) {
      return;
    }
    if (enter()) {
      run_share(loop_, worker);
      leave();
    }
  }
}

bool ThreadPool::enter() noexcept {
  auto inside = inside_.load(std::memory_order_relaxed);
  while ((inside & 1u) != 0) {
    if (inside_.compare_exchange_weak(inside, inside + 2, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void ThreadPool::leave() noexcept {
  inside_.fetch_sub(2, std::memory_order_release);
  inside_.notify_all();
}

}  // namespace stagecoach::device
