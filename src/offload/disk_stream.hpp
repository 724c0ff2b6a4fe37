#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/abort_signal.hpp"
#include "device/stream.hpp"
#include "offload/direct_file.hpp"
#include "offload/transfer_ledger.hpp"

namespace stagecoach::offload {

enum class DiskBackend {
  automatic,  ///< io_uring, or threads where the kernel refuses it
  uring,
  threads
};

struct DiskOptions {
  DiskBackend backend = DiskBackend::automatic;
  int depth = 8;  ///< requests in flight at most
  std::size_t request_bytes = std::size_t{8}
                              << 20;  ///< longer transfers are cut into such requests
  std::uint64_t delay_seed = 0;  ///< for tests: sleeps of random length before each item; 0 = none
};

/// A Stream whose work is transfers between files and memory, several in flight at once. An item
/// is begun after the items before it were begun and the events that were waited for before it have
/// passed; transfers end in any order. So two transfers of the same bytes need an event between
/// them: record() gives the point where all earlier transfers have ended, also while the stream
/// itself waits for something else. Work given to enqueue() runs after all earlier transfers have
/// ended. A transfer that fails raises the job's AbortSignal with its IoError, and what comes after
/// is dropped.
///
/// Files and memory stay in place until an event after the transfer has passed or the stream is
/// gone: an event wait that throws JobAborted does not say that the transfer has ended. The
/// destructor waits for what was enqueued; once the signal is raised, for what is in flight only.
class DiskStream : public device::Stream {
 public:
  /// Fills `out` with the file's bytes from `offset`, or up to the file's end where that comes
  /// after `least_bytes` or more; an earlier end is an IoError. Offset, size and address are
  /// multiples of kDiskAlignment.
  virtual void read(const DirectFile& file, std::uint64_t offset, std::span<std::byte> out,
                    std::size_t least_bytes) = 0;
  /// Offset, size and address are multiples of kDiskAlignment.
  virtual void write(const DirectFile& file, std::uint64_t offset,
                     std::span<const std::byte> data) = 0;
  [[nodiscard]] virtual DiskCounters counters() const = 0;
  [[nodiscard]] double busy_seconds() const override { return counters().busy_seconds; }
  /// "io_uring, 8 requests of 8.00 MiB", "8 threads", or
  /// "8 threads (io_uring refused: Operation not permitted)".
  [[nodiscard]] virtual std::string description() const = 0;
};

/// `name` is the thread's and stands in errors; `abort` outlives the stream. IoError if the backend
/// that was asked for is refused.
std::unique_ptr<DiskStream> make_disk_stream(const std::string& name, const DiskOptions& options,
                                             AbortSignal& abort);

}  // namespace stagecoach::offload
