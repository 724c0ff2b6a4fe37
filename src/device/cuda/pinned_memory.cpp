#include "device/cuda/pinned_memory.hpp"

#include <cuda_runtime_api.h>

#include <iterator>
#include <utility>

#include "device/cuda/check.hpp"

namespace stagecoach::device::cuda {
namespace {

bool means_refused(cudaError_t status) {
  return status == cudaErrorMemoryAllocation || status == cudaErrorNotSupported ||
         status == cudaErrorOperatingSystem;
}

class RegisteredMemory final : public Pinned {
 public:
  RegisteredMemory(std::span<std::byte> memory, int device_index,
                   std::shared_ptr<PinnedRanges> ranges)
      : memory_(memory), device_index_(device_index), ranges_(std::move(ranges)) {}
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  RegisteredMemory(RegisteredMemory&&) = delete;
  RegisteredMemory& operator=(RegisteredMemory&&) = delete;
  ~RegisteredMemory() override {
    ranges_->remove(memory_);
    cudaSetDevice(device_index_);
    cudaHostUnregister(memory_.data());
  }

 private:
  const std::span<std::byte> memory_;
  const int device_index_;
  const std::shared_ptr<PinnedRanges> ranges_;
};

// Nothing to pin, or pinned by somebody else.
class NothingToUnpin final : public Pinned {};

}  // namespace

void PinnedRanges::add(std::span<const std::byte> memory) {
  const std::lock_guard lock(mutex_);
  sizes_.insert_or_assign(memory.data(), memory.size());
}

void PinnedRanges::remove(std::span<const std::byte> memory) noexcept {
  const std::lock_guard lock(mutex_);
  sizes_.erase(memory.data());
}

bool PinnedRanges::contain(std::span<const std::byte> memory) const {
  const std::lock_guard lock(mutex_);
  const auto after = sizes_.upper_bound(memory.data());
  if (after == sizes_.begin()) {
    return false;
  }
  const auto& [begin, size] = *std::prev(after);
  const auto offset = static_cast<std::size_t>(memory.data() - begin);
  return offset <= size && memory.size() <= size - offset;
}

std::unique_ptr<Pinned> pin_memory(std::span<std::byte> memory, int device_index,
                                   const std::shared_ptr<PinnedRanges>& ranges) {
  if (memory.empty()) {
    return std::make_unique<NothingToUnpin>();
  }
  use_device(device_index);
  const auto status = cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable);
  if (status == cudaErrorHostMemoryAlreadyRegistered || means_refused(status)) {
    cudaGetLastError();  // answered here; it must not turn up in a later call
    return means_refused(status) ? nullptr : std::make_unique<NothingToUnpin>();
  }
  check_cuda(status, "pin memory of the host (cudaHostRegister)");
  auto pinned = std::make_unique<RegisteredMemory>(memory, device_index, ranges);
  ranges->add(memory);
  return pinned;
}

PinnedBuffer::PinnedBuffer(std::size_t size_bytes, std::string_view purpose, int device_index,
                           const std::shared_ptr<PinnedRanges>& ranges)
    : memory_(size_bytes, purpose), pinned_(pin_memory(memory_.bytes(), device_index, ranges)) {}

}  // namespace stagecoach::device::cuda
