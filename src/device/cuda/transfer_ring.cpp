#include "device/cuda/transfer_ring.hpp"

#include <utility>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"

namespace stagecoach::device::cuda {

TransferRing::TransferRing(std::size_t size_bytes, std::size_t alignment, Wait wait)
    : size_bytes_(size_bytes / alignment * alignment),
      alignment_(alignment),
      wait_(std::move(wait)) {}

std::size_t TransferRing::take(std::size_t size_bytes) {
  const auto rounded = round_up(size_bytes, alignment_);
  const auto to_end = size_bytes_ - next_;
  // A place is in one piece: what is left before the end is passed over.
  const auto passed_over = rounded <= to_end ? 0 : to_end;
  make_room(passed_over + rounded);
  const auto offset = passed_over > 0 ? 0 : next_;
  open_bytes_ += passed_over + rounded;
  next_ = offset + rounded;
  if (next_ == size_bytes_) {
    next_ = 0;
  }
  return offset;
}

void TransferRing::make_room(std::size_t bytes) {
  while (open_bytes_ + used_bytes_ + bytes > size_bytes_) {
    STAGECOACH_CHECK(!parts_.empty(), "{} bytes in a ring of {} of which {} are being filled",
                     bytes, size_bytes_, open_bytes_);
    wait_(parts_.front().free_after);
    used_bytes_ -= parts_.front().bytes;
    parts_.pop_front();
  }
}

void TransferRing::close(const Event& event) {
  if (open_bytes_ > 0) {
    used_bytes_ += open_bytes_;
    parts_.push_back({std::exchange(open_bytes_, 0), event});
  }
}

}  // namespace stagecoach::device::cuda
