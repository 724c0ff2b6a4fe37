#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_memory.hpp"
#include "base/half.hpp"
#include "base/hash.hpp"
#include "device/host/host_device.hpp"
#include "device/host/read_all.hpp"
#include "device/host/thread_pool.hpp"

namespace stagecoach::bench {

/// A host device with its scratch and one stream.
struct DeviceFixture {
  DeviceFixture(const std::string& isa, int threads)
      : device(device::make_host_device({threads, isa}, abort)) {
    device->reserve_scratch({16384, 256, 64, 65536, 16384});
    stream = device->create_stream("bench");
  }

  void finish() const { stream->record().wait(); }

  AbortSignal abort;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Stream> stream;
};

/// A page-aligned array of numbers of about unit size.
template <typename T>
class Numbers {
 public:
  explicit Numbers(std::int64_t count)
      : memory_(static_cast<std::size_t>(count) * sizeof(T), "a benchmark") {
    auto* values = data();
    for (std::int64_t i = 0; i < count; ++i) {
      const auto bits = mix_bits(static_cast<std::uint64_t>(i)) >> 40;
      const float value = static_cast<float>(bits) * 0x1p-23f - 1.0f;
      if constexpr (sizeof(T) == sizeof(Half)) {
        values[i] = to_half(value);
      } else {
        values[i] = value;
      }
    }
  }
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  [[nodiscard]] std::span<const std::byte> bytes() const { return memory_.bytes(); }

 private:
  AlignedMemory memory_;
};

/// Wall-clock seconds that `work` takes.
template <typename Work>
double seconds_of(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The median of repeated measurements of one thing.
class Median {
 public:
  void add(double seconds) { all_.push_back(seconds); }
  [[nodiscard]] double value() const {
    auto sorted = all_;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? 0 : sorted[sorted.size() / 2];
  }

 private:
  std::vector<double> all_;
};

/// The yardstick of what is bound by memory.
using device::read_all;

}  // namespace stagecoach::bench
