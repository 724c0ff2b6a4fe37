#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <type_traits>
#include <vector>

#include "support/cuda_standin/standin.hpp"

namespace stagecoach::test {

/// Fails the test, or the calling thread's part of it, where a call does.
#define EXPECT_CUDA(call) EXPECT_EQ((call), cudaSuccess)

/// The stand-in as its settings say, and what tests of it need of CUDA, released at the end.
class StandinCase {
 public:
  explicit StandinCase(const cuda_standin::Settings& settings = {}) {
    cuda_standin::reset(settings);
  }
  StandinCase(const StandinCase&) = delete;
  StandinCase& operator=(const StandinCase&) = delete;
  StandinCase(StandinCase&&) = delete;
  StandinCase& operator=(StandinCase&&) = delete;
  ~StandinCase() {
    for (auto* const stream : streams_) {
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    }
    for (auto* const event : events_) {
      cudaEventDestroy(event);
    }
    for (void* const memory : device_) {
      cudaFree(memory);
    }
    for (void* const memory : pinned_) {
      cudaFreeHost(memory);
    }
    cuda_standin::reset({});
  }

  cudaStream_t stream() {
    streams_.emplace_back();
    EXPECT_CUDA(cudaStreamCreateWithFlags(&streams_.back(), cudaStreamNonBlocking));
    return streams_.back();
  }
  cudaEvent_t event() {
    events_.emplace_back();
    EXPECT_CUDA(cudaEventCreateWithFlags(&events_.back(), cudaEventDisableTiming));
    return events_.back();
  }
  template <typename T>
  T* device(std::size_t count) {
    device_.emplace_back();
    EXPECT_CUDA(cudaMalloc(&device_.back(), count * sizeof(T)));
    return static_cast<T*>(device_.back());
  }
  template <typename T>
  T* pinned(std::size_t count) {
    pinned_.emplace_back();
    EXPECT_CUDA(cudaMallocHost(&pinned_.back(), count * sizeof(T)));
    return static_cast<T*>(pinned_.back());
  }
  template <typename T>
  T* put(const std::vector<T>& items) {
    T* const data = device<T>(items.size());
    EXPECT_CUDA(cudaMemcpy(data, items.data(), items.size() * sizeof(T), cudaMemcpyHostToDevice));
    return data;
  }
  template <typename T>
  static std::vector<T> get(const T* data, std::size_t count) {
    std::vector<T> items(count);
    EXPECT_CUDA(cudaMemcpy(items.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
    return items;
  }

  template <typename... Params>
  static cudaError_t launch(cudaStream_t stream, dim3 grid, dim3 block, std::size_t shared_bytes,
                            void (*kernel)(Params...), std::type_identity_t<Params>... args) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, args...);
  }

 private:
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
  std::vector<void*> device_;
  std::vector<void*> pinned_;
};

}  // namespace stagecoach::test
