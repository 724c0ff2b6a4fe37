#include "device/cuda/cuda_event.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "device/cuda/check.hpp"

namespace stagecoach::device::cuda {
namespace {

// Between two looks at the GPU: short at first, then no load on a core.
constexpr auto kFirstPoll = std::chrono::microseconds(5);
constexpr auto kLongestPoll = std::chrono::microseconds(200);

}  // namespace

EventPool::~EventPool() {
  cudaSetDevice(device_index_);
  for (auto* const event : free_) {
    cudaEventDestroy(event);
  }
}

cudaEvent_t EventPool::take() {
  const std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    auto* const event = free_.back();
    free_.pop_back();
    return event;
  }
  if (made_ == free_.capacity()) {
    free_.reserve(2 * made_ + 16);
  }
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
             "make an event (cudaEventCreateWithFlags)");
  ++made_;
  return event;
}

void EventPool::give_back(cudaEvent_t event) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

CudaEvent::~CudaEvent() {
  if (event_ != nullptr) {
    pool_->give_back(event_);
  }
}

bool CudaEvent::passed() const {
  if (passed_.load(std::memory_order_acquire)) {
    return true;
  }
  if (!issued_.passed()) {
    return false;
  }
  use_device(pool_->device_index());
  const auto status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) {
    return false;
  }
  check_cuda(status, "finish what was enqueued (cudaEventQuery)");
  if (abort_.raised()) {
    return false;
  }
  passed_.store(true, std::memory_order_release);
  return true;
}

void CudaEvent::wait() const {
  if (passed_.load(std::memory_order_acquire)) {
    return;
  }
  issued_.wait();
  for (auto pause = kFirstPoll; !passed(); pause = std::min(2 * pause, kLongestPoll)) {
    if (abort_.raised()) {
      throw JobAborted(fmt::format(
          "stream '{}' stopped before the point that was waited for: the job failed", stream_));
    }
    std::this_thread::sleep_for(pause);
  }
}

void CudaEvent::issue(cudaStream_t stream) {
  event_ = pool_->take();
  check_cuda(cudaEventRecord(event_, stream), "record an event (cudaEventRecord)");
  issued_.pass();
}

void CudaEvent::order_before(cudaStream_t stream) const {
  issued_.wait();
  check_cuda(cudaStreamWaitEvent(stream, event_, 0),
             "make a stream wait for an event (cudaStreamWaitEvent)");
}

}  // namespace stagecoach::device::cuda
