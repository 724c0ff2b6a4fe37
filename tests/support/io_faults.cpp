// A library for LD_PRELOAD: stands between a program and its disk, see io_faults.hpp.
#include <dlfcn.h>
#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <mutex>
#include <set>

namespace {

constexpr std::uint64_t kBlock = 4096;

long setting(const char* name, long otherwise = 0) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtol(text, nullptr, 10) : otherwise;
}

// What the program would have called without this library.
template <typename Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

int refuse(int error) {
  errno = error;
  return -1;
}

bool counts(int descriptor, std::uint64_t offset, std::uint64_t size) {
  if (size == 0 || size % kBlock != 0 || offset % kBlock != 0) {
    return false;
  }
  struct stat info {};
  const int flags = ::fcntl(descriptor, F_GETFL);
  return (flags >= 0 && (flags & O_DIRECT) != 0) ||
         (::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 0);
}

// The error number with which this transfer is to fail, or 0.
int fault(bool write, int descriptor, std::uint64_t offset, std::uint64_t size) {
  static std::atomic<long> reads{0};
  static std::atomic<long> writes{0};
  static const long failing_read = setting("STAGECOACH_TEST_FAIL_READ");
  static const long failing_write = setting("STAGECOACH_TEST_FAIL_WRITE");
  if (!counts(descriptor, offset, size)) {
    return 0;
  }
  const bool hit = write ? ++writes == failing_write : ++reads == failing_read;
  return hit ? static_cast<int>(setting("STAGECOACH_TEST_FAIL_ERRNO", EIO)) : 0;
}

int open_fault(int flags) {
  if ((flags & O_DIRECT) != 0 && setting("STAGECOACH_TEST_NO_DIRECT") != 0) {
    return EINVAL;
  }
  const bool nameless = (flags & O_TMPFILE) == O_TMPFILE;
  return nameless && setting("STAGECOACH_TEST_NO_TMPFILE") != 0 ? EOPNOTSUPP : 0;
}

mode_t mode_of(int flags, va_list arguments) {
  const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return makes ? va_arg(arguments, mode_t) : 0;
}

// The io_uring requests in flight whose answers are to be errors.
struct Marked {
  std::mutex mutex;
  std::set<std::uint64_t> requests;
};

Marked& marked() {
  static Marked instance;
  return instance;
}

void mark(const io_uring_sqe& entry) {
  const bool write = entry.opcode == IORING_OP_WRITE;
  if ((write || entry.opcode == IORING_OP_READ) &&
      fault(write, entry.fd, entry.off, entry.len) != 0) {
    const std::lock_guard lock(marked().mutex);
    marked().requests.insert(entry.user_data);
  }
}

}  // namespace

extern "C" {

#define STAGECOACH_OPEN(name)                                 \
  int name(const char* path, int flags, ...) {                \
    if (const int error = open_fault(flags)) {                \
      return refuse(error);                                   \
    }                                                         \
    va_list arguments;                                        \
    va_start(arguments, flags);                               \
    const mode_t mode = mode_of(flags, arguments);            \
    va_end(arguments);                                        \
    static const auto next = original<decltype(name)>(#name); \
    return next(path, flags, mode);                           \
  }
STAGECOACH_OPEN(open)
STAGECOACH_OPEN(open64)

#define STAGECOACH_OPENAT(name)                               \
  int name(int folder, const char* path, int flags, ...) {    \
    if (const int error = open_fault(flags)) {                \
      return refuse(error);                                   \
    }                                                         \
    va_list arguments;                                        \
    va_start(arguments, flags);                               \
    const mode_t mode = mode_of(flags, arguments);            \
    va_end(arguments);                                        \
    static const auto next = original<decltype(name)>(#name); \
    return next(folder, path, flags, mode);                   \
  }
STAGECOACH_OPENAT(openat)
STAGECOACH_OPENAT(openat64)

// What open() becomes with _FORTIFY_SOURCE.
int __open_2(const char* path, int flags) { return open(path, flags); }
int __open64_2(const char* path, int flags) { return open64(path, flags); }

#define STAGECOACH_FCNTL(name)                                                        \
  int name(int descriptor, int command, ...) {                                        \
    va_list arguments;                                                                \
    va_start(arguments, command);                                                     \
    void* argument = va_arg(arguments, void*);                                        \
    va_end(arguments);                                                                \
    const auto flags = static_cast<int>(reinterpret_cast<std::intptr_t>(argument));   \
    if (command == F_SETFL && (flags & O_DIRECT) != 0 && open_fault(O_DIRECT) != 0) { \
      return refuse(EINVAL);                                                          \
    }                                                                                 \
    static const auto next = original<decltype(name)>(#name);                         \
    return next(descriptor, command, argument);                                       \
  }
STAGECOACH_FCNTL(fcntl)
STAGECOACH_FCNTL(fcntl64)

#define STAGECOACH_TRANSFER(name, write, pointer)                                               \
  ssize_t name(int descriptor, pointer data, size_t size, off_t offset) {                       \
    if (const int error = fault(write, descriptor, static_cast<std::uint64_t>(offset), size)) { \
      return refuse(error);                                                                     \
    }                                                                                           \
    static const auto next = original<decltype(name)>(#name);                                   \
    return next(descriptor, data, size, offset);                                                \
  }
STAGECOACH_TRANSFER(pread, false, void*)
STAGECOACH_TRANSFER(pread64, false, void*)
STAGECOACH_TRANSFER(pwrite, true, const void*)
STAGECOACH_TRANSFER(pwrite64, true, const void*)

#define STAGECOACH_FALLOCATE(name)                               \
  int name(int descriptor, int mode, off_t offset, off_t size) { \
    if (setting("STAGECOACH_TEST_NO_FALLOCATE") != 0) {          \
      return refuse(EOPNOTSUPP);                                 \
    }                                                            \
    static const auto next = original<decltype(name)>(#name);    \
    return next(descriptor, mode, offset, size);                 \
  }
STAGECOACH_FALLOCATE(fallocate)
STAGECOACH_FALLOCATE(fallocate64)

int io_uring_queue_init(unsigned entries, io_uring* ring, unsigned flags) {
  static const auto next = original<decltype(io_uring_queue_init)>("io_uring_queue_init");
  return setting("STAGECOACH_TEST_NO_URING") != 0 ? -EPERM : next(entries, ring, flags);
}

int io_uring_submit(io_uring* ring) {
  for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; ++i) {
    mark(ring->sq.sqes[i & ring->sq.ring_mask]);
  }
  static const auto next = original<decltype(io_uring_submit)>("io_uring_submit");
  return next(ring);
}

int io_uring_wait_cqes(io_uring* ring, io_uring_cqe** entry, unsigned count,
                       __kernel_timespec* patience, sigset_t* signals) {
  static const auto next = original<decltype(io_uring_wait_cqes)>("io_uring_wait_cqes");
  const int result = next(ring, entry, count, patience, signals);
  if (result == 0) {
    const std::lock_guard lock(marked().mutex);
    if (marked().requests.erase((*entry)->user_data) > 0) {
      (*entry)->res = -static_cast<int>(setting("STAGECOACH_TEST_FAIL_ERRNO", EIO));
    }
  }
  return result;
}

}  // extern "C"
