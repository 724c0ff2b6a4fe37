#include "job/line_file.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.hpp"

namespace stagecoach::job {
namespace {

constexpr const char* kStandardOutput = "-";

/// Waits until a descriptor that does not block takes data again.
void wait_writable(int descriptor) {
  pollfd entry{descriptor, POLLOUT, 0};
  ::poll(&entry, 1, -1);
}

}  // namespace

LineFile::LineFile(LineFileOptions options)
    : options_(std::move(options)),
      name_(options_.path == kStandardOutput ? "standard output" : options_.path),
      last_sync_(std::chrono::steady_clock::now()) {
  open();
  struct stat info {};
  is_regular_ =
      ::fstat(descriptor_, &info) == 0 && S_ISREG(info.st_mode) && file_.descriptor() >= 0;
}

LineFile::~LineFile() {
  if (is_new_ && descriptor_ >= 0 && size_bytes_ == 0) {
    ::unlink(options_.path.c_str());
  }
}

void LineFile::open() {
  if (options_.path == kStandardOutput) {
    descriptor_ = STDOUT_FILENO;
    return;
  }
  if (!options_.overwrite) {
    refuse_existing(options_.path, options_.flag);
  }
  try {
    file_ = File(options_.path, options_.overwrite ? File::Mode::truncate : File::Mode::create);
  } catch (const IoError& error) {
    throw ConfigError(fmt::format("{}; check {}", error.what(), options_.flag));
  }
  descriptor_ = file_.descriptor();
  is_new_ = !options_.overwrite;
}

void LineFile::append(std::string_view line) {
  STAGECOACH_CHECK(descriptor_ >= 0, "{} was closed", name_);
  put(line);
  ++lines_;
  ++unsynced_;
  if (unsynced_ >= options_.sync_lines ||
      std::chrono::steady_clock::now() - last_sync_ >= options_.sync_interval) {
    sync();
  }
}

void LineFile::put(std::string_view line) {
  auto rest = line;
  while (!rest.empty()) {
    const auto put = ::write(descriptor_, rest.data(), rest.size());
    if (put > 0) {
      rest.remove_prefix(static_cast<std::size_t>(put));
    } else if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      wait_writable(descriptor_);
    } else if (put == 0 || errno != EINTR) {
      fail_write(put == 0 ? ENOSPC : errno);
    }
  }
  size_bytes_ += line.size();
}

void LineFile::fail_write(int cause) {
  const bool cut =
      !is_regular_ || (::ftruncate(descriptor_, static_cast<off_t>(size_bytes_)) == 0 &&
                       ::lseek(descriptor_, static_cast<off_t>(size_bytes_), SEEK_SET) >= 0);
  throw IoError(fmt::format("cannot write {}: {}; it holds {} whole results{}", name_,
                            std::strerror(cause), lines_,
                            cut ? "" : " and a broken last line, which could not be cut off"));
}

void LineFile::sync() {
  STAGECOACH_CHECK(descriptor_ >= 0, "{} was closed", name_);
  // Pipes and terminals have nothing to sync.
  if (::fdatasync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) {
    throw IoError(fmt::format("cannot bring {} to the disk: {}; {} of its results are safe", name_,
                              std::strerror(errno), lines_ - unsynced_));
  }
  unsynced_ = 0;
  last_sync_ = std::chrono::steady_clock::now();
}

void LineFile::close() {
  if (descriptor_ >= 0) {
    sync();
    file_ = File();
    descriptor_ = -1;
  }
}

void refuse_existing(const std::string& path, const std::string& flag) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    throw ConfigError(
        fmt::format("{} exists: pass --overwrite to replace it, or name another {}", path, flag));
  }
}

}  // namespace stagecoach::job
