#include "support/cuda_standin/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "support/cuda_standin/calls.hpp"
#include "support/cuda_standin/engine.hpp"
#include "support/cuda_standin/standin.hpp"

namespace cuda_standin {
namespace {

constexpr std::size_t kPoisonBytes = 16 << 20;
constexpr std::size_t kFreedPieces = 32;

std::size_t whole_pages(std::size_t size_bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (size_bytes + page - 1) / page * page;
}

// A file of poison. Mapped privately, again and again, it makes as much poison as one likes without
// touching memory before somebody writes to it.
int poison_file() {
  static const int file = [] {
    const int made = memfd_create("cuda_standin_poison", MFD_CLOEXEC);
    if (made < 0 || ftruncate(made, kPoisonBytes) != 0) {
      throw std::runtime_error("cuda_standin: no file for poison");
    }
    void* const bytes = mmap(nullptr, kPoisonBytes, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
    if (bytes == MAP_FAILED) {
      throw std::runtime_error("cuda_standin: no memory for poison");
    }
    std::memset(bytes, kPoison, kPoisonBytes);
    munmap(bytes, kPoisonBytes);
    return made;
  }();
  return file;
}

void map_poison(std::byte* memory, std::size_t size_bytes) {
  for (std::size_t done = 0; done < size_bytes; done += kPoisonBytes) {
    if (mmap(memory + done, std::min(kPoisonBytes, size_bytes - done), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, poison_file(), 0) == MAP_FAILED) {
      throw std::runtime_error("cuda_standin: cannot map poison");
    }
  }
}

}  // namespace

Memory& Memory::get() {
  static auto* const one = new Memory;
  return *one;
}

Memory::Pieces::iterator Memory::find(Pieces& pieces, const void* memory) {
  const auto* const address = static_cast<const std::byte*>(memory);
  auto after = pieces.upper_bound(address);
  if (after == pieces.begin()) {
    return pieces.end();
  }
  --after;
  return address < after->first + after->second.size_bytes ? after : pieces.end();
}

cudaError_t Memory::allocate(int device, std::size_t size_bytes, void** memory) {
  *memory = nullptr;
  if (size_bytes == 0) {
    return cudaSuccess;
  }
  const std::size_t used = used_bytes(device);
  const std::lock_guard lock(mutex_);
  const std::size_t limit = settings().memory_bytes;
  if (used > limit || size_bytes > limit - used) {
    return cudaErrorMemoryAllocation;
  }
  void* const mapping = mmap(nullptr, whole_pages(size_bytes), PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return cudaErrorMemoryAllocation;
  }
  auto* const bytes = static_cast<std::byte*>(mapping);
  map_poison(bytes, whole_pages(size_bytes));
  device_[bytes] = {size_bytes, device, true};
  *memory = bytes;
  return cudaSuccess;
}

cudaError_t Memory::free(void* memory) {
  const std::lock_guard lock(mutex_);
  auto* const bytes = static_cast<std::byte*>(memory);
  const auto found = device_.find(bytes);
  if (found == device_.end()) {
    return cudaErrorInvalidValue;
  }
  const std::size_t size_bytes = whole_pages(found->second.size_bytes);
  map_poison(bytes, size_bytes);
  device_.erase(found);
  freed_.emplace_back(bytes, size_bytes);
  if (freed_.size() > kFreedPieces) {
    forget_oldest();
  }
  return cudaSuccess;
}

void Memory::forget_oldest() {
  munmap(freed_.front().first, freed_.front().second);
  freed_.pop_front();
}

cudaError_t Memory::allocate_pinned(std::size_t size_bytes, void** memory) {
  const std::lock_guard lock(mutex_);
  *memory = nullptr;
  const std::size_t limit = settings().pinnable_bytes;
  if (pinned_bytes_ > limit || size_bytes > limit - pinned_bytes_) {
    return cudaErrorMemoryAllocation;
  }
  const std::size_t rounded = whole_pages(std::max<std::size_t>(size_bytes, 1));
  void* const bytes = std::aligned_alloc(4096, rounded);
  if (bytes == nullptr) {
    return cudaErrorMemoryAllocation;
  }
  std::memset(bytes, kPoison, rounded);
  pinned_[static_cast<std::byte*>(bytes)] = {size_bytes, 0, true};
  pinned_bytes_ += size_bytes;
  *memory = bytes;
  return cudaSuccess;
}

cudaError_t Memory::free_pinned(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = pinned_.find(static_cast<std::byte*>(memory));
  if (found == pinned_.end() || !found->second.ours) {
    return cudaErrorInvalidValue;
  }
  pinned_bytes_ -= found->second.size_bytes;
  std::memset(memory, kPoison, found->second.size_bytes);
  std::free(memory);
  pinned_.erase(found);
  return cudaSuccess;
}

cudaError_t Memory::pin(void* memory, std::size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  if (memory == nullptr || size_bytes == 0) {
    return cudaErrorInvalidValue;
  }
  auto* const bytes = static_cast<std::byte*>(memory);
  const auto next = pinned_.lower_bound(bytes);
  if (find(pinned_, memory) != pinned_.end() ||
      (next != pinned_.end() && next->first < bytes + size_bytes)) {
    return cudaErrorHostMemoryAlreadyRegistered;
  }
  const std::size_t limit = settings().pinnable_bytes;
  if (pinned_bytes_ > limit || size_bytes > limit - pinned_bytes_) {
    return cudaErrorMemoryAllocation;
  }
  pinned_[bytes] = {size_bytes, 0, false};
  pinned_bytes_ += size_bytes;
  return cudaSuccess;
}

cudaError_t Memory::unpin(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = pinned_.find(static_cast<std::byte*>(memory));
  if (found == pinned_.end() || found->second.ours) {
    return cudaErrorHostMemoryNotRegistered;
  }
  pinned_bytes_ -= found->second.size_bytes;
  pinned_.erase(found);
  return cudaSuccess;
}

std::size_t Memory::used_bytes(int device) {
  const std::lock_guard lock(mutex_);
  std::size_t used = 0;
  for (const auto& [address, piece] : device_) {
    used += piece.device == device ? piece.size_bytes : 0;
  }
  return used;
}

Memory::Place Memory::place(const void* memory, std::size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  const auto whole = [&](const Pieces::iterator& piece) {
    const auto offset =
        static_cast<std::size_t>(static_cast<const std::byte*>(memory) - piece->first);
    return size_bytes <= piece->second.size_bytes - offset;
  };
  if (const auto found = find(device_, memory); found != device_.end()) {
    return whole(found) ? Place::device : Place::beyond;
  }
  for (const auto& [freed, freed_bytes] : freed_) {
    if (memory >= freed && memory < freed + freed_bytes) {
      return Place::beyond;
    }
  }
  const auto found = find(pinned_, memory);
  return found != pinned_.end() && whole(found) ? Place::pinned : Place::pageable;
}

int Memory::device_of(const void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = find(device_, memory);
  return found != device_.end() ? found->second.device : -1;
}

void Memory::restart() {
  const std::lock_guard lock(mutex_);
  if (!device_.empty() || !pinned_.empty()) {
    throw std::logic_error("cuda_standin::reset: there is still memory allocated or pinned");
  }
  while (!freed_.empty()) {
    forget_oldest();
  }
}

}  // namespace cuda_standin

using cuda_standin::begin_call;
using cuda_standin::current_device;
using cuda_standin::Engine;
using cuda_standin::give;
using cuda_standin::Memory;

cudaError_t cudaMalloc(void** memory, std::size_t size_bytes) {
  if (const auto error = begin_call("cudaMalloc", cudaErrorMemoryAllocation);
      error != cudaSuccess) {
    return error;
  }
  return give(Memory::get().allocate(current_device(), size_bytes, memory));
}

// Even a call that has to fail frees, as in CUDA, where it is then an older error that it gives.
cudaError_t cudaFree(void* memory) {
  const cudaError_t error = begin_call("cudaFree");
  if (memory == nullptr) {
    return error;
  }
  const int device = Memory::get().device_of(memory);
  if (device >= 0) {
    Engine::get().wait_for_device(device);
  }
  const cudaError_t freed = Memory::get().free(memory);
  return error != cudaSuccess ? error : give(freed);
}

cudaError_t cudaMallocHost(void** memory, std::size_t size_bytes, unsigned) {
  if (const auto error = begin_call("cudaMallocHost", cudaErrorMemoryAllocation);
      error != cudaSuccess) {
    return error;
  }
  return give(Memory::get().allocate_pinned(size_bytes, memory));
}

cudaError_t cudaHostAlloc(void** memory, std::size_t size_bytes, unsigned) {
  if (const auto error = begin_call("cudaHostAlloc", cudaErrorMemoryAllocation);
      error != cudaSuccess) {
    return error;
  }
  return give(Memory::get().allocate_pinned(size_bytes, memory));
}

cudaError_t cudaFreeHost(void* memory) {
  const cudaError_t error = begin_call("cudaFreeHost");
  if (memory == nullptr) {
    return error;
  }
  const cudaError_t freed = Memory::get().free_pinned(memory);
  return error != cudaSuccess ? error : give(freed);
}

cudaError_t cudaHostRegister(void* memory, std::size_t size_bytes, unsigned) {
  if (const auto error = begin_call("cudaHostRegister", cudaErrorMemoryAllocation);
      error != cudaSuccess) {
    return error;
  }
  return give(Memory::get().pin(memory, size_bytes));
}

cudaError_t cudaHostUnregister(void* memory) {
  const cudaError_t error = begin_call("cudaHostUnregister");
  const cudaError_t unpinned = Memory::get().unpin(memory);
  return error != cudaSuccess ? error : give(unpinned);
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  if (const auto error = begin_call("cudaMemGetInfo"); error != cudaSuccess) {
    return error;
  }
  *total_bytes = cuda_standin::settings().memory_bytes;
  *free_bytes = *total_bytes - Memory::get().used_bytes(current_device());
  return cudaSuccess;
}
