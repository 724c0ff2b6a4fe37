#include "base/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace stagecoach {
namespace {

[[noreturn]] void throw_io(const char* action, const std::string& path) {
  throw IoError(fmt::format("cannot {} {}: {}", action, path, std::strerror(errno)));
}

int flags_of(File::Mode mode) {
  switch (mode) {
    case File::Mode::read:
      return O_RDONLY;
    case File::Mode::create:
      return O_RDWR | O_CREAT | O_EXCL;
    case File::Mode::truncate:
      return O_RDWR | O_CREAT | O_TRUNC;
  }
  return O_RDONLY;
}

}  // namespace

File::File(std::string path, Mode mode) : path_(std::move(path)) {
  do {
    descriptor_ = ::open(path_.c_str(), flags_of(mode) | O_CLOEXEC, 0644);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) {
    throw_io(mode == Mode::read ? "open" : "create", path_);
  }
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

std::uint64_t File::size_bytes() const {
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) {
    throw_io("get the size of", path_);
  }
  return static_cast<std::uint64_t>(info.st_size);
}

void File::read_at(std::span<std::byte> out, std::uint64_t offset) const {
  while (!out.empty()) {
    const auto got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) {
        continue;
      }
      throw_io("read", path_);
    }
    if (got == 0) {
      throw IoError(fmt::format("cannot read {}: it ends at byte {}, {} more were expected", path_,
                                offset, out.size()));
    }
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

void File::write_at(std::span<const std::byte> data, std::uint64_t offset) const {
  while (!data.empty()) {
    const auto put = ::pwrite(descriptor_, data.data(), data.size(), static_cast<off_t>(offset));
    if (put < 0) {
      if (errno == EINTR) {
        continue;
      }
      throw_io("write", path_);
    }
    data = data.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
}

void File::truncate_to(std::uint64_t size_bytes) const {
  if (::ftruncate(descriptor_, static_cast<off_t>(size_bytes)) != 0) {
    throw_io("truncate", path_);
  }
}

void File::sync() const {
  if (::fdatasync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) {
    throw_io("sync", path_);
  }
}

std::string read_text_file(const std::string& path) {
  const File file(path, File::Mode::read);
  struct stat info {};
  if (::fstat(file.descriptor(), &info) == 0 && S_ISDIR(info.st_mode)) {
    throw IoError(fmt::format("cannot read {}: it is a directory", path));
  }
  std::string text;
  char chunk[65536];
  while (true) {
    const auto got = ::read(file.descriptor(), chunk, sizeof(chunk));
    if (got < 0) {
      if (errno == EINTR) {
        continue;
      }
      throw_io("read", path);
    }
    if (got == 0) {
      return text;
    }
    text.append(chunk, static_cast<std::size_t>(got));
  }
}

}  // namespace stagecoach
