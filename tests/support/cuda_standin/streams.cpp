// cudaStream_t is the address of a StreamState, cudaEvent_t of an owner of an EventState.

#include "support/cuda_standin/streams.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda_runtime.h"
#include "support/cuda_standin/calls.hpp"
#include "support/cuda_standin/engine.hpp"
#include "support/cuda_standin/grid.hpp"
#include "support/cuda_standin/memory.hpp"

struct CUevent_st {
  std::shared_ptr<cuda_standin::EventState> state;
};

namespace cuda_standin {

int event_number(const CUevent_st* event) { return event->state->number; }

namespace {

constexpr std::size_t kSharedBytes = 48 << 10;
constexpr std::size_t kSharedBytesOptIn = 64 << 10;
constexpr unsigned kMostThreads = 1024;
constexpr unsigned kMostBlocksYZ = 65535;

// One copy after the other in each direction, at the settings' pace.
class Link {
 public:
  void pass(std::size_t size_bytes) {
    const double pace = settings().pcie_bytes_per_second;
    if (pace <= 0) {
      return;
    }
    Clock::time_point end;
    {
      const std::lock_guard lock(mutex_);
      free_from_ = std::max(free_from_, Clock::now()) +
                   std::chrono::duration_cast<Clock::duration>(
                       std::chrono::duration<double>(static_cast<double>(size_bytes) / pace));
      end = free_from_;
    }
    std::this_thread::sleep_until(end);
  }

 private:
  std::mutex mutex_;
  Clock::time_point free_from_;
};

Link& link(cudaMemcpyKind kind) {
  static Link to_device;
  static Link to_host;
  return kind == cudaMemcpyHostToDevice ? to_device : to_host;
}

// What kernels have been allowed to take.
class SharedLimits {
 public:
  void set(const void* kernel, std::size_t size_bytes) {
    const std::lock_guard lock(mutex_);
    limits_[kernel] = size_bytes;
  }
  std::size_t of(const void* kernel) {
    const std::lock_guard lock(mutex_);
    const auto found = limits_.find(kernel);
    return found != limits_.end() ? std::max(found->second, kSharedBytes) : kSharedBytes;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::size_t> limits_;
};
SharedLimits& shared_limits() {
  static SharedLimits one;
  return one;
}

cudaError_t check_launch(const cudaLaunchConfig_t& config, const void* kernel) {
  const dim3& grid = config.gridDim;
  const dim3& block = config.blockDim;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > kMostBlocksYZ ||
      grid.z > kMostBlocksYZ) {
    return cudaErrorInvalidConfiguration;
  }
  if (block.x == 0 || block.y == 0 || block.z == 0 || block.x > kMostThreads ||
      block.y > kMostThreads || block.z > 64 || block.x * block.y * block.z > kMostThreads) {
    return cudaErrorInvalidConfiguration;
  }
  return config.dynamicSmemBytes > shared_limits().of(kernel) ? cudaErrorInvalidValue : cudaSuccess;
}

using Place = Memory::Place;

// The kind that the addresses have; cudaMemcpyDefault if they contradict the one that was given.
cudaMemcpyKind kind_of(Place to, Place from, cudaMemcpyKind kind) {
  if (to == Place::beyond || from == Place::beyond) {
    return cudaMemcpyDefault;
  }
  const bool to_device = to == Place::device;
  const bool from_device = from == Place::device;
  const cudaMemcpyKind found =
      to_device ? (from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                : (from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  return kind == cudaMemcpyDefault || kind == found ? found : cudaMemcpyDefault;
}

std::function<bool()> once(std::function<void()> work) {
  return [work = std::move(work)] {
    work();
    return true;
  };
}

// Pageable memory of the host is read before the call returns, and written before it returns.
cudaError_t copy(const std::shared_ptr<StreamState>& stream, void* to, const void* from,
                 std::size_t size_bytes, cudaMemcpyKind kind) {
  const Place to_place = Memory::get().place(to, size_bytes);
  const Place from_place = Memory::get().place(from, size_bytes);
  kind = kind_of(to_place, from_place, kind);
  if (kind == cudaMemcpyDefault) {
    return cudaErrorInvalidValue;
  }
  std::shared_ptr<std::vector<std::byte>> snapshot;
  if (from_place == Place::pageable) {
    const auto* const bytes = static_cast<const std::byte*>(from);
    snapshot = std::make_shared<std::vector<std::byte>>(bytes, bytes + size_bytes);
    from = snapshot->data();
  }
  const cudaError_t error =
      Engine::get().submit(stream, once([=] {
                             if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToHost) {
                               link(kind).pass(size_bytes);
                             }
                             std::memmove(to, from, size_bytes);
                             (void)snapshot;
                           }));
  if (error == cudaSuccess && (to_place == Place::pageable || kind == cudaMemcpyHostToHost)) {
    return Engine::get().wait_for(stream);
  }
  return error;
}

}  // namespace

std::shared_ptr<StreamState> stream_of(cudaStream_t stream) {
  return Engine::get().find(stream, current_device());
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> body) {
  if (const auto error = begin_call("cudaLaunchKernelEx"); error != cudaSuccess) {
    return error;
  }
  const auto stream = stream_of(config.stream);
  if (stream == nullptr) {
    return give(cudaErrorInvalidResourceHandle);
  }
  if (const auto error = check_launch(config, kernel); error != cudaSuccess) {
    return give(error);
  }
  const Grid grid{config.gridDim, config.blockDim, config.dynamicSmemBytes,
                  Engine::get().backwards()};
  return give(
      Engine::get().submit(stream, once([grid, body = std::move(body)] { run_grid(grid, body); })));
}

}  // namespace cuda_standin

using cuda_standin::begin_call;
using cuda_standin::Engine;
using cuda_standin::give;
using cuda_standin::Memory;
using cuda_standin::stream_of;

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (const auto error = begin_call("cudaFuncSetAttribute"); error != cudaSuccess) {
    return error;
  }
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<std::size_t>(value) > cuda_standin::kSharedBytesOptIn) {
    return give(cudaErrorInvalidValue);
  }
  cuda_standin::shared_limits().set(kernel, static_cast<std::size_t>(value));
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const auto error = begin_call("cudaMemcpyAsync"); error != cudaSuccess) {
    return error;
  }
  const auto state = stream_of(stream);
  if (state == nullptr) {
    return give(cudaErrorInvalidResourceHandle);
  }
  if (size_bytes == 0) {
    return cudaSuccess;
  }
  return give(cuda_standin::copy(state, to, from, size_bytes, kind));
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(to, from, size_bytes, kind, nullptr);
  return error != cudaSuccess ? error : give(Engine::get().wait_for(stream_of(nullptr)));
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t size_bytes, cudaStream_t stream) {
  if (const auto error = begin_call("cudaMemsetAsync"); error != cudaSuccess) {
    return error;
  }
  const auto state = stream_of(stream);
  if (state == nullptr) {
    return give(cudaErrorInvalidResourceHandle);
  }
  if (size_bytes == 0) {
    return cudaSuccess;
  }
  if (Memory::get().place(to, size_bytes) != Memory::Place::device) {
    return give(cudaErrorInvalidValue);
  }
  return give(
      Engine::get().submit(state, cuda_standin::once([=] { std::memset(to, value, size_bytes); })));
}

cudaError_t cudaMemset(void* to, int value, std::size_t size_bytes) {
  const cudaError_t error = cudaMemsetAsync(to, value, size_bytes, nullptr);
  return error != cudaSuccess ? error : give(Engine::get().wait_for(stream_of(nullptr)));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const auto error = begin_call("cudaStreamCreateWithFlags"); error != cudaSuccess) {
    return error;
  }
  const auto made = Engine::get().create_stream(cuda_standin::current_device());
  *stream = reinterpret_cast<cudaStream_t>(made.get());
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t error = begin_call("cudaStreamDestroy");
  const auto state = stream != nullptr ? stream_of(stream) : nullptr;
  if (state == nullptr) {
    return give(cudaErrorInvalidResourceHandle);
  }
  Engine::get().destroy_stream(state);
  return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const auto error = begin_call("cudaStreamSynchronize"); error != cudaSuccess) {
    return error;
  }
  const auto state = stream_of(stream);
  return give(state != nullptr ? Engine::get().wait_for(state) : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const auto error = begin_call("cudaStreamQuery"); error != cudaSuccess) {
    return error;
  }
  const auto state = stream_of(stream);
  return give(state != nullptr ? Engine::get().query(state) : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const auto error = begin_call("cudaStreamWaitEvent"); error != cudaSuccess) {
    return error;
  }
  const auto state = stream_of(stream);
  if (state == nullptr || event == nullptr) {
    return give(cudaErrorInvalidResourceHandle);
  }
  return give(Engine::get().wait_in(state, event->state));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* user_data) {
  if (const auto error = begin_call("cudaLaunchHostFunc"); error != cudaSuccess) {
    return error;
  }
  const auto state = stream_of(stream);
  if (state == nullptr) {
    return give(cudaErrorInvalidResourceHandle);
  }
  return give(Engine::get().submit(state, cuda_standin::once([=] { function(user_data); })));
}

cudaError_t cudaDeviceSynchronize() {
  if (const auto error = begin_call("cudaDeviceSynchronize"); error != cudaSuccess) {
    return error;
  }
  return give(Engine::get().wait_for_device(cuda_standin::current_device()));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const auto error = begin_call("cudaEventCreateWithFlags"); error != cudaSuccess) {
    return error;
  }
  *event = new CUevent_st{Engine::get().create_event((flags & cudaEventDisableTiming) == 0)};
  Engine::get().count_event(1);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const auto error = begin_call("cudaEventRecord"); error != cudaSuccess) {
    return error;
  }
  const auto state = stream_of(stream);
  if (state == nullptr || event == nullptr) {
    return give(cudaErrorInvalidResourceHandle);
  }
  return give(Engine::get().record(event->state, state));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const auto error = begin_call("cudaEventQuery"); error != cudaSuccess) {
    return error;
  }
  return give(event != nullptr ? Engine::get().query(event->state)
                               : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const auto error = begin_call("cudaEventSynchronize"); error != cudaSuccess) {
    return error;
  }
  return give(event != nullptr ? Engine::get().wait_for(event->state)
                               : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (const auto error = begin_call("cudaEventElapsedTime"); error != cudaSuccess) {
    return error;
  }
  if (begin == nullptr || end == nullptr) {
    return give(cudaErrorInvalidResourceHandle);
  }
  return give(Engine::get().elapsed(*begin->state, *end->state, milliseconds));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const cudaError_t error = begin_call("cudaEventDestroy");
  if (event == nullptr) {
    return give(cudaErrorInvalidResourceHandle);
  }
  delete event;
  Engine::get().count_event(-1);
  return error;
}
