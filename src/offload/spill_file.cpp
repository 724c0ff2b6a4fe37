#include "offload/spill_file.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"

namespace stagecoach::offload {
namespace {

bool space_is_short(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

// `where` is the flag and the folder.
[[noreturn]] void throw_short(const std::string& where, std::uint64_t size_bytes,
                              std::uint64_t free_bytes, int error) {
  throw OutOfMemory(
      fmt::format("{}: {} of disk space are needed, {} are free ({}): lower --disk-mem or choose "
                  "another folder",
                  where, format_bytes(size_bytes), format_bytes(free_bytes), std::strerror(error)));
}

[[noreturn]] void throw_unusable(const std::string& where, int error) {
  throw ConfigError(fmt::format("{}: no file can be made there: {}", where, std::strerror(error)));
}

// A file that never had a name, or -1 with errno.
int open_nameless(const std::string& folder) {
  int descriptor = -1;
  do {
    descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

// For file systems without O_TMPFILE.
int open_unlinked(const std::string& folder) {
  auto path = folder + "/.stagecoach-spill-XXXXXX";
  const int descriptor = ::mkostemp(path.data(), O_CLOEXEC);
  if (descriptor >= 0) {
    ::unlink(path.c_str());
  }
  return descriptor;
}

int open_spill(const std::string& folder) {
  const int descriptor = open_nameless(folder);
  const bool refused = descriptor < 0 && (errno == EOPNOTSUPP || errno == EISDIR);
  return refused ? open_unlinked(folder) : descriptor;
}

// Afterwards, and not while opening: a refused open with O_CREAT may leave the file behind.
bool make_direct(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && ::fcntl(descriptor, F_SETFL, flags | O_DIRECT) == 0;
}

// 0 or an error number. Never posix_fallocate, which writes zeros where the file system cannot.
int allocate(int descriptor, std::uint64_t size_bytes) {
  int result = 0;
  do {
    result = ::fallocate(descriptor, 0, 0, static_cast<off_t>(size_bytes));
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

void take_space(SpillFile& spill, const std::string& where, std::uint64_t size_bytes,
                std::uint64_t free_bytes) {
  const int error = size_bytes == 0 ? 0 : allocate(spill.file.descriptor(), size_bytes);
  if (error == EOPNOTSUPP && size_bytes <= free_bytes) {
    spill.notes.push_back(
        fmt::format("{}: its file system cannot reserve space: keep {} free there", where,
                    format_bytes(size_bytes)));
  } else if (error == EOPNOTSUPP) {
    throw_short(where, size_bytes, free_bytes, ENOSPC);
  } else if (space_is_short(error)) {
    throw_short(where, size_bytes, free_bytes, error);
  } else if (error != 0) {
    throw IoError(fmt::format("{}: cannot allocate {}: {}", where, format_bytes(size_bytes),
                              std::strerror(error)));
  }
}

}  // namespace

SpillFile make_spill_file(const std::string& folder, std::uint64_t size_bytes,
                          const std::string& flag) {
  const auto where = flag + " " + folder;
  // Before allocating: a failed attempt may hold space for a while.
  const auto free_bytes = free_disk_bytes(folder, flag);
  const int descriptor = open_spill(folder);
  if (descriptor < 0) {
    const int error = errno;
    space_is_short(error) ? throw_short(where, size_bytes, free_bytes, error)
                          : throw_unusable(where, error);
  }
  SpillFile spill{{folder + "/(spill file)", descriptor, make_direct(descriptor)}, {}};
  if (!spill.file.direct()) {
    spill.notes.push_back(fmt::format(
        "{}: its file system refuses direct I/O: the page cache takes DRAM besides", where));
  }
  take_space(spill, where, size_bytes, free_bytes);
  return spill;
}

std::uint64_t free_disk_bytes(const std::string& folder, const std::string& flag) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) {
    throw_unusable(flag + " " + folder, errno);
  }
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace stagecoach::offload
