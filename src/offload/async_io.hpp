#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "offload/direct_file.hpp"

namespace stagecoach::offload {

/// One transfer between a file and memory. `file` and the memory stay until it has ended.
struct IoRequest {
  const DirectFile* file = nullptr;
  bool write = false;
  std::uint64_t offset = 0;
  std::byte* data = nullptr;  ///< only read from when `write`
  std::size_t size_bytes = 0;
  /// Reads: a file that ends before this many bytes is an IoError; one that ends after them is not.
  std::size_t least_bytes = 0;
};

/// Called once a request, as soon as it has ended: with nullptr, or an IoError that names path and
/// offset. Called from a thread of the AsyncIo or from submit(); must not throw.
using IoDone = std::function<void(std::exception_ptr)>;

/// Carries out transfers, several at once and in no particular order.
class AsyncIo {
 public:
  AsyncIo() = default;
  AsyncIo(const AsyncIo&) = delete;
  AsyncIo& operator=(const AsyncIo&) = delete;
  AsyncIo(AsyncIo&&) = delete;
  AsyncIo& operator=(AsyncIo&&) = delete;
  /// Waits for everything in flight.
  virtual ~AsyncIo() = default;

  /// Begins a transfer; blocks while as many as the AsyncIo's depth are in flight. One caller at a
  /// time. The calling thread must not end before its transfers have.
  virtual void submit(const IoRequest& request, IoDone done) = 0;
  /// "io_uring, 8 requests" or "8 threads".
  [[nodiscard]] virtual std::string description() const = 0;
};

/// Through io_uring(7). IoError if the kernel refuses it.
std::unique_ptr<AsyncIo> make_uring_io(int depth);

/// Through pread(2) and pwrite(2), one transfer a thread.
std::unique_ptr<AsyncIo> make_thread_io(int threads);

}  // namespace stagecoach::offload
