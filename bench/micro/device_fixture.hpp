#pragma once

#include <time.h>

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

namespace stagecoach::bench {

/// A host device with its scratch and one stream.
struct DeviceFixture {
  DeviceFixture(const std::string& isa, int threads)
      : device(device::make_host_device({threads, isa}, abort)) {
    device->reserve_scratch({16384, 256, 64, 65536});
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

/// Processor seconds of this process that `work` takes: with one computing thread its time on a
/// machine that nobody else uses.
template <typename Work>
double seconds_of(Work&& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  work();
  return now() - start;
}

/// Reads every byte once (eight sums, so that only memory limits it): the yardstick of what is
/// bound by memory.
std::uint64_t read_all(std::span<const std::byte> bytes);

}  // namespace stagecoach::bench
