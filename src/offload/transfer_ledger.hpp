#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "device/host/host_event.hpp"

namespace stagecoach::offload {

/// What a stream of transfers has done.
struct DiskCounters {
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t requests = 0;
  double busy_seconds = 0;  ///< time with something in flight
};

/// Which transfers of a stream are in flight, and the events that wait for them. Transfers end in
/// any order and on any thread; events pass in the order in which they were added.
class TransferLedger {
 public:
  /// The transfers between two events.
  struct Span {
    std::size_t in_flight = 0;
    std::shared_ptr<device::HostEvent> event;  // the one after them, once it was added
  };

  /// A transfer begins; end() takes what this returns.
  Span* begin();
  void end(Span* span, std::uint64_t size_bytes, bool write);
  /// `event` passes when all that began before have ended; or is dropped after fail().
  void add(std::shared_ptr<device::HostEvent> event);
  /// Events that have not passed are dropped when their turn comes.
  void fail();
  /// Waits until nothing is in flight.
  void wait_until_idle();
  [[nodiscard]] DiskCounters counters() const;

 private:
  using Clock = std::chrono::steady_clock;

  void settle();

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<Span> spans_{1};  // only the last has no event
  std::size_t in_flight_ = 0;
  bool failed_ = false;
  Clock::time_point busy_since_;
  DiskCounters counters_;
};

}  // namespace stagecoach::offload
