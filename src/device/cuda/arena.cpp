#include "device/cuda/arena.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <iterator>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "device/cuda/check.hpp"

namespace stagecoach::device::cuda {
namespace {

std::byte* take_memory(const std::string& name, std::size_t size_bytes) {
  void* data = nullptr;
  const auto status = cudaMalloc(&data, size_bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // answered here; it must not turn up in a later call
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "tell its free memory (cudaMemGetInfo)");
    throw OutOfMemory(fmt::format("cannot take {} of {}: {} of {} are free (see --device-mem)",
                                  format_bytes(size_bytes), name, format_bytes(free_bytes),
                                  format_bytes(total_bytes)));
  }
  check_cuda(status, "take the device's memory (cudaMalloc)");
  return static_cast<std::byte*>(data);
}

}  // namespace

Arena::Arena(const std::string& name, int device_index, std::size_t limit_bytes)
    : name_(name), device_index_(device_index), budget_(name, limit_bytes) {
  if (limit_bytes > 0) {
    const auto size_bytes = round_up(limit_bytes, kAlignment) + kRoundingBytes;
    free_.emplace(0, size_bytes);
    use_device(device_index);
    data_ = take_memory(name, size_bytes);
  }
}

Arena::~Arena() {
  if (data_ != nullptr) {
    cudaSetDevice(device_index_);
    cudaFree(data_);
  }
}

std::byte* Arena::allocate(std::size_t size_bytes, const std::string& purpose) {
  budget_.take(size_bytes, purpose);
  if (size_bytes == 0) {
    return nullptr;
  }
  const auto rounded = round_up(size_bytes, kAlignment);
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(free_.begin(), free_.end(),
                                  [&](const auto& piece) { return piece.second >= rounded; });
  if (found == free_.end()) {
    budget_.give_back(size_bytes);
    throw OutOfMemory(
        fmt::format("cannot take {} of {} for {}: {} of {} are used, and no free piece is so large",
                    format_bytes(size_bytes), name_, purpose, format_bytes(budget_.used_bytes()),
                    format_bytes(budget_.limit_bytes())));
  }
  const auto [offset, free_bytes] = *found;
  free_.erase(found);
  if (free_bytes > rounded) {
    free_.emplace(offset + rounded, free_bytes - rounded);
  }
  used_.emplace(offset, rounded);
  return data_ + offset;
}

void Arena::release(std::byte* data, std::size_t size_bytes) noexcept {
  budget_.give_back(size_bytes);
  if (data == nullptr) {
    return;
  }
  const std::lock_guard lock(mutex_);
  auto node = used_.extract(static_cast<std::size_t>(data - data_));
  if (node.empty()) {
    return;
  }
  const auto piece = free_.insert(std::move(node)).position;
  const auto after = std::next(piece);
  if (after != free_.end() && piece->first + piece->second == after->first) {
    piece->second += after->second;
    free_.erase(after);
  }
  if (piece != free_.begin()) {
    const auto before = std::prev(piece);
    if (before->first + before->second == piece->first) {
      before->second += piece->second;
      free_.erase(piece);
    }
  }
}

}  // namespace stagecoach::device::cuda
