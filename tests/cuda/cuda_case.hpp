#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "base/abort_signal.hpp"
#include "base/half.hpp"
#include "device/cuda/cuda_device.hpp"

namespace stagecoach::test {

/// A CUDA device with scratch and a stream. The tests run with a GPU as well as with the stand-in,
/// so the host never touches the device's memory.
class CudaCase {
 public:
  static constexpr device::ScratchShape kShape{.max_in_features = 4096,
                                               .head_dim = 256,
                                               .page_tokens = 64,
                                               .vocab = 60000,
                                               .sparse_tokens = 4096,
                                               .heads = 16,
                                               .kv_heads = 16,
                                               .max_rows = 512,
                                               .max_sequences = 64,
                                               .longest_pages = 64};

  explicit CudaCase(const device::ScratchShape& shape = kShape,
                    std::size_t memory_bytes = std::size_t{600} << 20)
      : device_(device::make_cuda_device({.index = 0, .memory_bytes = memory_bytes}, abort_)) {
    device_->reserve_scratch(shape);
    stream_ = device_->create_stream("test");
  }

  [[nodiscard]] device::Device& operator*() const { return *device_; }
  [[nodiscard]] device::Device* operator->() const { return device_.get(); }
  [[nodiscard]] device::Stream& stream() const { return *stream_; }
  [[nodiscard]] const AbortSignal& abort() const { return abort_; }
  [[nodiscard]] AbortSignal& abort() { return abort_; }

  /// Device memory with these items; it lives as long as the case.
  template <typename T>
  T* put(const std::vector<T>& items) {
    T* const data = take<T>(items.size());
    if (!items.empty()) {
      device_->copy_from_host(*stream_, reinterpret_cast<std::byte*>(data),
                              reinterpret_cast<const std::byte*>(items.data()),
                              items.size() * sizeof(T));
      stream_->record().wait();
    }
    return data;
  }
  /// Device memory for `count` items, not filled.
  template <typename T>
  T* take(std::size_t count) {
    buffers_.push_back(device_->allocate(std::max<std::size_t>(count * sizeof(T), 1), "a test"));
    return buffers_.back().template as<T>();
  }
  template <typename T>
  [[nodiscard]] std::vector<T> get(const T* data, std::size_t count) const {
    std::vector<T> items(count);
    if (count > 0) {
      device_->copy_to_host(*stream_, reinterpret_cast<std::byte*>(items.data()),
                            reinterpret_cast<const std::byte*>(data), count * sizeof(T));
    }
    stream_->record().wait();
    return items;
  }

  /// Calls (device.*operation)(stream, args) and waits until it has run.
  template <typename Args>
  void run(void (device::Device::*operation)(device::Stream&, Args), Args args) const {
    (device_.get()->*operation)(*stream_, std::move(args));
    stream_->record().wait();
  }

 private:
  AbortSignal abort_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::vector<device::Buffer> buffers_;
};

}  // namespace stagecoach::test
