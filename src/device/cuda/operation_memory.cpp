#include "device/cuda/operation_memory.hpp"

#include <cstring>
#include <utility>

#include "device/cuda/check.hpp"

namespace stagecoach::device::cuda {

class OperationMemory::Issued final : public Operation {
 public:
  Issued(OperationMemory& memory, CudaStream& stream) : memory_(memory), stream_(stream) {}

  [[nodiscard]] cudaStream_t stream() const override { return stream_.handle(); }
  [[nodiscard]] std::byte* scratch() const override { return memory_.scratch_; }

  const std::byte* upload_bytes(std::span<const std::byte> bytes) override {
    if (bytes.empty()) {
      return memory_.uploaded_;
    }
    const auto offset = memory_.upload_ring_.take(bytes.size());
    auto* const slot = memory_.upload_.data() + offset;
    auto* const to = memory_.uploaded_ + offset;
    std::memcpy(slot, bytes.data(), bytes.size());
    check_cuda(cudaMemcpyAsync(to, slot, bytes.size(), cudaMemcpyHostToDevice, stream()),
               "copy arguments to the GPU (cudaMemcpyAsync)");
    return to;
  }

  void download(const void* from, std::size_t size_bytes,
                std::function<void(const std::byte*)> then) override {
    const auto offset = size_bytes == 0 ? 0 : memory_.download_ring_.take(size_bytes);
    auto* const slot = memory_.download_.data() + offset;
    if (size_bytes > 0) {
      check_cuda(cudaMemcpyAsync(slot, from, size_bytes, cudaMemcpyDeviceToHost, stream()),
                 "copy results from the GPU (cudaMemcpyAsync)");
    }
    stream_.call_on_host([slot, then = std::move(then)] { then(slot); });
  }

 private:
  OperationMemory& memory_;
  CudaStream& stream_;
};

OperationMemory::OperationMemory(const OperationLayout& layout, std::byte* device_memory,
                                 int device_index, const std::shared_ptr<PinnedRanges>& ranges)
    : scratch_(device_memory),
      uploaded_(device_memory + layout.scratch),
      upload_(layout.upload, "operations' arguments", device_index, ranges),
      download_(layout.download, "operations' results", device_index, ranges),
      upload_ring_(layout.upload, kOperationAlignment),
      download_ring_(layout.download, kOperationAlignment) {}

void OperationMemory::operate(CudaStream& stream, const std::function<void(Operation&)>& work) {
  const std::lock_guard lock(mutex_);
  if (last_stream_ != nullptr && last_stream_ != stream.handle()) {
    stream.order_after(last_operation_);
  }
  Issued operation(*this, stream);
  work(operation);
  last_stream_ = stream.handle();
  last_operation_ = stream.mark();
  upload_ring_.close(last_operation_);
  download_ring_.close(last_operation_);
}

}  // namespace stagecoach::device::cuda
