#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "base/hash.hpp"
#include "cuda/cuda_case.hpp"
#include "device/cuda/check.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace stagecoach::test {

/// For tests of streams and copies: hardly any scratch.
inline constexpr device::ScratchShape kSmallShape{.max_in_features = 64,
                                                  .head_dim = 16,
                                                  .page_tokens = 16,
                                                  .vocab = 64,
                                                  .sparse_tokens = 64,
                                                  .heads = 2,
                                                  .kv_heads = 2,
                                                  .max_rows = 16,
                                                  .max_sequences = 4,
                                                  .longest_pages = 4};
inline constexpr std::size_t kSmallMemory = std::size_t{160} << 20;

/// Bytes that tell numbers and places apart.
inline std::vector<std::byte> pattern(std::size_t size, std::uint64_t number) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(mix_bits(number * 0x10001 + i / 8) >> (i % 8 * 8));
  }
  return bytes;
}

/// Stands for a kernel: copies from device memory to device memory in the stream's turn.
inline void move_on_device(device::Stream& stream, std::byte* to, const std::byte* from,
                           std::size_t size_bytes) {
  auto& on = dynamic_cast<device::cuda::CudaStream&>(stream);
  on.issue([=, &on] {
    device::cuda::check_cuda(
        cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToDevice, on.handle()),
        "move bytes (cudaMemcpyAsync)");
  });
}

/// Work that holds its stream until it is opened.
class Gate {
 public:
  [[nodiscard]] std::function<void()> work() const {
    return [opened = opened_] { opened.wait(); };
  }
  void open() { promise_.set_value(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> opened_ = promise_.get_future().share();
};

}  // namespace stagecoach::test
