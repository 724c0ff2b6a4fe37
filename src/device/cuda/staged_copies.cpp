#include "device/cuda/staged_copies.hpp"

#include <algorithm>
#include <cstring>
#include <deque>

#include "device/cuda/check.hpp"

namespace stagecoach::device::cuda {

StagedCopies::StagedCopies(int device_index, const std::shared_ptr<PinnedRanges>& ranges)
    : up_{.memory = {kRingBytes, "copies to the GPU", device_index, ranges}, .mutex = {}},
      down_{.memory = {kRingBytes, "copies from the GPU", device_index, ranges}, .mutex = {}} {}

void StagedCopies::to_device(CudaStream& stream, std::byte* to, const std::byte* from,
                             std::size_t size_bytes) {
  // Before the lock: what is waited for may need another stream's copy, here or on another rank.
  stream.catch_up_on_host();
  const std::lock_guard lock(up_.mutex);
  for (std::size_t done = 0; done < size_bytes;) {
    const auto piece = std::min(kPieceBytes, size_bytes - done);
    auto* const slot = up_.memory.data() + up_.ring.take(piece);
    std::memcpy(slot, from + done, piece);
    check_cuda(cudaMemcpyAsync(to + done, slot, piece, cudaMemcpyHostToDevice, stream.handle()),
               "copy to the GPU (cudaMemcpyAsync)");
    up_.ring.close(stream.mark());
    done += piece;
  }
}

void StagedCopies::to_host(CudaStream& stream, std::byte* to, const std::byte* from,
                           std::size_t size_bytes) {
  struct Piece {
    const std::byte* slot;
    std::size_t offset;
    std::size_t size_bytes;
    Event here;
  };
  std::deque<Piece> on_their_way;
  const auto fetch = [&] {
    const auto& piece = on_their_way.front();
    piece.here.wait();
    std::memcpy(to + piece.offset, piece.slot, piece.size_bytes);
    on_their_way.pop_front();
  };
  stream.catch_up_on_host();  // as above
  const std::lock_guard lock(down_.mutex);
  for (std::size_t done = 0; done < size_bytes;) {
    if (on_their_way.size() == kPieces - 1) {
      fetch();  // before its place is taken again
    }
    const auto size = std::min(kPieceBytes, size_bytes - done);
    auto* const slot = down_.memory.data() + down_.ring.take(size);
    check_cuda(cudaMemcpyAsync(slot, from + done, size, cudaMemcpyDeviceToHost, stream.handle()),
               "copy from the GPU (cudaMemcpyAsync)");
    const auto here = stream.mark();
    down_.ring.close(here);
    on_their_way.push_back({slot, done, size, here});
    done += size;
  }
  while (!on_their_way.empty()) {
    fetch();
  }
}

}  // namespace stagecoach::device::cuda
