#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/half.hpp"
#include "device/host/host_device.hpp"
#include "device/host/isa.hpp"

namespace stagecoach::test {

/// A host device, its scratch and a stream; `run` enqueues and waits.
class TestDevice {
 public:
  explicit TestDevice(const std::string& isa = "auto", int threads = 1)
      : TestDevice(device::HostDeviceOptions{threads, isa}) {}
  explicit TestDevice(const device::HostDeviceOptions& options)
      : device_(device::make_host_device(options, abort_)) {
    device_->reserve_scratch({16384, 256, 64, 60000, 4096});
    stream_ = device_->create_stream("test");
  }

  [[nodiscard]] device::Device& operator*() const { return *device_; }
  [[nodiscard]] device::Device* operator->() const { return device_.get(); }
  [[nodiscard]] device::Stream& stream() const { return *stream_; }
  [[nodiscard]] const AbortSignal& abort() const { return abort_; }

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
};

/// Instruction sets of this CPU by name.
inline std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const auto isa : device::supported_isas()) {
    names.emplace_back(device::isa_name(isa));
  }
  return names;
}

/// Devices whose results must be the same bits.
inline std::vector<std::unique_ptr<TestDevice>> equal_devices() {
  std::vector<std::unique_ptr<TestDevice>> devices;
  for (const auto& isa : isa_names()) {
    for (const int threads : {1, 3}) {
      devices.push_back(std::make_unique<TestDevice>(isa, threads));
    }
  }
  return devices;
}

inline std::vector<float> random_floats(std::int64_t count, unsigned seed, float spread = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (auto& value : values) {
    value = normal(generator);
  }
  return values;
}

inline std::vector<Half> random_halves(std::int64_t count, unsigned seed, float spread = 1.0f) {
  std::vector<Half> values;
  for (const float value : random_floats(count, seed, spread)) {
    values.push_back(to_half(value));
  }
  return values;
}

/// Equal bits, NaN and signed zeros included.
template <typename T>
[[nodiscard]] bool same_bits(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace stagecoach::test
