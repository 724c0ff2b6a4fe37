#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/abort_signal.hpp"
#include "device/host/host_event.hpp"
#include "device/stream.hpp"

namespace stagecoach::device::cuda {

/// CUDA events without timing, made when there is none to be used again. Safe to use from any
/// thread.
class EventPool {
 public:
  explicit EventPool(int device_index) : device_index_(device_index) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  EventPool(EventPool&&) = delete;
  EventPool& operator=(EventPool&&) = delete;
  /// All events must have come back.
  ~EventPool();

  /// Throws CudaError.
  [[nodiscard]] cudaEvent_t take();
  /// Calls nothing of CUDA's: an event's last copy may go on a thread of CUDA's own. Waits that a
  /// stream has been given keep to the point that the event had marked.
  void give_back(cudaEvent_t event) noexcept;

  [[nodiscard]] int device_index() const noexcept { return device_index_; }

 private:
  const int device_index_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;  // with room for all that were made
  std::size_t made_ = 0;
};

/// A point in a CUDA stream. It is issued when the stream's thread has come to it, which may be
/// long after it was made: CUDA takes a wait for an event that was never recorded for none at all.
class CudaEvent final : public Event::State {
 public:
  /// `stream` is named in errors.
  CudaEvent(std::shared_ptr<EventPool> pool, const std::string& stream, const AbortSignal& abort)
      : pool_(std::move(pool)), stream_(stream), abort_(abort), issued_(stream, abort) {}
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  CudaEvent(CudaEvent&&) = delete;
  CudaEvent& operator=(CudaEvent&&) = delete;
  ~CudaEvent() override;

  /// Once the job has failed only what was seen to pass before has passed: work of the host may
  /// have failed before the point. Throws CudaError if the GPU failed.
  [[nodiscard]] bool passed() const override;
  /// Throws JobAborted once the job has failed, CudaError if the GPU did.
  void wait() const override;

  /// Marks the point. On the thread that issues the stream's work; once. Throws CudaError.
  void issue(cudaStream_t stream);
  /// Once it is issued.
  [[nodiscard]] cudaEvent_t native() const noexcept { return event_; }
  /// The point will never come.
  void drop() { issued_.drop(); }
  /// Blocks until the point is issued, then makes `stream` wait for it. Throws JobAborted if it was
  /// dropped, CudaError.
  void order_before(cudaStream_t stream) const;

 private:
  const std::shared_ptr<EventPool> pool_;
  const std::string stream_;
  const AbortSignal& abort_;
  HostEvent issued_;
  cudaEvent_t event_ = nullptr;  // written before issued_ passes
  mutable std::atomic<bool> passed_{false};
};

}  // namespace stagecoach::device::cuda
