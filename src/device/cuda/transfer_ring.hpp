#pragma once

#include <cstddef>
#include <deque>
#include <functional>

#include "device/stream.hpp"

namespace stagecoach::device::cuda {

/// Which bytes of a ring are in use by work that has been issued. Places are taken in a circle; one
/// comes again when the event after the work that used it has passed. One caller at a time.
class TransferRing {
 public:
  /// How it waits, on the caller's thread, for the event after which a place is free.
  using Wait = std::function<void(const Event&)>;

  TransferRing() = default;
  /// `alignment`: of every place.
  explicit TransferRing(
      std::size_t size_bytes, std::size_t alignment = 256,
      Wait wait = [](const Event& event) { event.wait(); });

  /// The offset of a place, for work that is about to be issued. Waits for the oldest work where
  /// the ring is full. InternalError if places taken since the last `close` fill it.
  [[nodiscard]] std::size_t take(std::size_t size_bytes);
  /// All places taken since the last `close` are free once `event` has passed.
  void close(const Event& event);
  /// Whether a place was taken since the last `close`.
  [[nodiscard]] bool open() const noexcept { return open_bytes_ > 0; }

  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  struct Part {
    std::size_t bytes;
    Event free_after;
  };

  void make_room(std::size_t bytes);

  std::size_t size_bytes_ = 0;
  std::size_t alignment_ = 1;
  Wait wait_;
  std::size_t next_ = 0;        // offset
  std::size_t open_bytes_ = 0;  // what was left at the end included
  std::size_t used_bytes_ = 0;  // of parts_
  std::deque<Part> parts_;      // oldest first
};

}  // namespace stagecoach::device::cuda
