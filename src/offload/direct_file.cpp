#include "offload/direct_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace stagecoach::offload {
namespace {

int open_to_read(const std::string& path, int extra_flags) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | extra_flags);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

}  // namespace

DirectFile DirectFile::open_for_reading(std::string path) {
  int descriptor = open_to_read(path, O_DIRECT);
  const bool direct = descriptor >= 0;
  if (!direct && errno == EINVAL) {
    descriptor = open_to_read(path, 0);
  }
  if (descriptor < 0) {
    throw IoError(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  return {std::move(path), descriptor, direct};
}

DirectFile::DirectFile(std::string path, int descriptor, bool direct) noexcept
    : path_(std::move(path)), descriptor_(descriptor), direct_(direct) {}

DirectFile::DirectFile(DirectFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      direct_(other.direct_) {}

DirectFile& DirectFile::operator=(DirectFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(direct_, other.direct_);
  return *this;
}

DirectFile::~DirectFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

std::uint64_t DirectFile::size_bytes() const {
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) {
    throw IoError(fmt::format("cannot get the size of {}: {}", path_, std::strerror(errno)));
  }
  return static_cast<std::uint64_t>(info.st_size);
}

}  // namespace stagecoach::offload
