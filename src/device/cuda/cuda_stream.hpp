#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/abort_signal.hpp"
#include "device/cuda/cuda_event.hpp"
#include "device/host/stream_queue.hpp"
#include "device/stream.hpp"

namespace stagecoach::device::cuda {

/// A CUDA stream, and a thread that issues its work in order. So whoever enqueues never waits, and
/// the stream may wait for what only the host knows of.
///
/// Work of `enqueue` runs on a thread of CUDA's own: it must not call CUDA, nor wait for work of
/// another stream, since one thread may serve several.
class CudaStream final : public Stream {
 public:
  /// `abort` must outlive the stream and its events. With a `delay_seed` that is not 0 the thread
  /// sleeps before some items, for tests: see make_host_stream. Throws CudaError.
  CudaStream(const std::string& name, std::shared_ptr<EventPool> events, AbortSignal& abort,
             std::uint64_t delay_seed = 0);
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  CudaStream(CudaStream&&) = delete;
  CudaStream& operator=(CudaStream&&) = delete;
  /// Waits for what was enqueued; once the job has failed, for what the GPU has begun, and not for
  /// long.
  ~CudaStream() override;

  void enqueue(std::function<void()> work) override;
  void wait(const Event& event) override;
  [[nodiscard]] Event record() override;

  /// Runs `work` on the stream's thread in turn, to issue what belongs into the stream. An
  /// exception raises the AbortSignal; what was enqueued after it is dropped.
  void issue(std::function<void()> work);

  // For work of `issue`, on the stream's thread.

  [[nodiscard]] cudaStream_t handle() const noexcept { return handle_.get(); }
  /// `work` as that of `enqueue`, here in the stream.
  void call_on_host(std::function<void()> work);
  /// The stream waits here for `event`, of CUDA's or of the host's.
  void order_after(const Event& event);
  /// A point here in the stream.
  [[nodiscard]] Event mark();
  /// From here on the stream has work that writes memory of the host by itself.
  void writes_host_memory() { host_memory_behind_ = true; }
  /// Blocks until memory of the host is what the stream's work so far makes of it, and what the
  /// stream was told to wait for has passed. Throws JobAborted.
  void catch_up_on_host();

 private:
  struct HostCall;
  struct Destroy {
    int device_index;
    void operator()(cudaStream_t stream) const noexcept;
  };

  static void run_host_call(void* call) noexcept;
  void run(const std::function<void()>& work) noexcept;
  void finish() noexcept;
  void forget_done_calls();

  const std::string name_;
  const std::shared_ptr<EventPool> events_;
  AbortSignal& abort_;
  const std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy> handle_;
  // All of the stream's own thread:
  bool failed_ = false;
  bool device_in_use_ = false;
  bool host_memory_behind_ = false;
  std::vector<Event> waits_;  // of the stream, not yet seen to have passed by the host
  std::deque<std::unique_ptr<HostCall>> host_calls_;
  StreamQueue queue_;  // last: it uses all of the above
};

}  // namespace stagecoach::device::cuda
