#include "cuda/device_memory_transport.hpp"

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <utility>

namespace stagecoach::test {
namespace {

using comm::Channel;

void expect_success(cudaError_t status) {
  if (status != cudaSuccess) {
    throw std::runtime_error(cudaGetErrorString(status));
  }
}

/// Device memory that grows, and a stream that copies.
class Copies {
 public:
  explicit Copies(int device) : device_(device) {}
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  Copies(Copies&&) = delete;
  Copies& operator=(Copies&&) = delete;
  ~Copies() {
    cudaSetDevice(device_);
    if (data_ != nullptr) {
      cudaFree(data_);
    }
    if (stream_ != nullptr) {
      cudaStreamDestroy(stream_);
    }
  }

  std::span<std::byte> take(std::size_t bytes) {
    expect_success(cudaSetDevice(device_));
    if (stream_ == nullptr) {
      expect_success(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    }
    if (bytes > size_) {
      if (data_ != nullptr) {
        expect_success(cudaFree(std::exchange(data_, nullptr)));
      }
      void* data = nullptr;
      expect_success(cudaMalloc(&data, bytes));
      data_ = static_cast<std::byte*>(data);
      size_ = bytes;
    }
    return {data_, bytes};
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind) {
    if (bytes > 0) {
      expect_success(cudaMemcpyAsync(to, from, bytes, kind, stream_));
      expect_success(cudaStreamSynchronize(stream_));
    }
  }

 private:
  const int device_;
  cudaStream_t stream_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

class DeviceMemoryTransport final : public comm::Transport {
 public:
  DeviceMemoryTransport(std::unique_ptr<comm::Transport> inner, int device, bool to_itself)
      : sent_(device), received_(device), inner_(std::move(inner)), to_itself_(to_itself) {}

  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_->size(); }
  [[nodiscard]] int ranks_on_this_host() const noexcept override {
    return inner_->ranks_on_this_host();
  }
  [[nodiscard]] int rank_on_this_host() const noexcept override {
    return inner_->rank_on_this_host();
  }
  [[nodiscard]] std::string describe(int rank) const override { return inner_->describe(rank); }

  void send(std::span<const std::byte> data, int to, Channel channel,
            const std::string& what) override {
    if (!on_device(rank(), to, channel)) {
      inner_->send(data, to, channel, what);
      return;
    }
    const auto there = sent_.take(data.size());
    sent_.copy(there.data(), data.data(), data.size(), cudaMemcpyHostToDevice);
    inner_->send(there, to, channel, what);
  }
  void receive(std::span<std::byte> data, int from, Channel channel,
               const std::string& what) override {
    if (!on_device(from, rank(), channel)) {
      inner_->receive(data, from, channel, what);
      return;
    }
    const auto there = received_.take(data.size());
    inner_->receive(there, from, channel, what);
    received_.copy(data.data(), there.data(), data.size(), cudaMemcpyDeviceToHost);
  }
  void send_message(std::span<const std::byte> data, int to, Channel channel,
                    const std::string& what) override {
    inner_->send_message(data, to, channel, what);
  }
  std::vector<std::byte> receive_message(int from, Channel channel,
                                         const std::string& what) override {
    return inner_->receive_message(from, channel, what);
  }

 private:
  [[nodiscard]] bool on_device(int from, int to, Channel channel) const {
    return channel == Channel::hidden && from >= 0 && to < size() &&
           (to == from + 1 || (to == from && to_itself_));
  }

  // Outlive the transport that knows their addresses.
  Copies sent_;
  Copies received_;
  std::unique_ptr<comm::Transport> inner_;
  const bool to_itself_;
};

}  // namespace

std::unique_ptr<comm::Transport> with_device_memory(std::unique_ptr<comm::Transport> inner,
                                                    int device, bool to_itself) {
  return std::make_unique<DeviceMemoryTransport>(std::move(inner), device, to_itself);
}

}  // namespace stagecoach::test
