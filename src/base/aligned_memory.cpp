#include "base/aligned_memory.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"

namespace stagecoach {

namespace {

/// Takes the pages now, not when they are first touched.
void populate(std::byte* data, std::size_t size_bytes) {
  if (madvise(data, size_bytes, MADV_POPULATE_WRITE) == 0) {
    return;
  }
  for (std::size_t at = 0; at < size_bytes; at += kPageBytes) {  // kernels before 5.14
    *const_cast<volatile std::byte*>(data + at) = std::byte{0};
  }
}

}  // namespace

AlignedMemory::AlignedMemory(std::size_t size_bytes, std::string_view purpose) {
  if (size_bytes == 0) {
    return;
  }
  void* address =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    throw OutOfMemory(fmt::format("cannot take {} of memory for {}: {}", format_bytes(size_bytes),
                                  purpose, std::strerror(errno)));
  }
  data_ = static_cast<std::byte*>(address);
  size_bytes_ = size_bytes;
  // Huge pages where the system grants them: attention walks through memory in strides, and
  // translating addresses would take longer than the data.
  madvise(address, size_bytes, MADV_HUGEPAGE);
  populate(data_, size_bytes);
}

AlignedMemory::AlignedMemory(AlignedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

AlignedMemory& AlignedMemory::operator=(AlignedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

AlignedMemory::~AlignedMemory() {
  if (data_ != nullptr) {
    munmap(data_, size_bytes_);
  }
}

}  // namespace stagecoach
