#include "comm/nccl_edge.hpp"

#include <chrono>
#include <utility>

#include "base/error.hpp"
#include "comm/back_off.hpp"
#include "comm/nccl_check.hpp"

namespace stagecoach::comm {

NcclEdge::NcclEdge(int device, const ncclUniqueId& id, Place place, const AbortSignal& abort_signal,
                   const Patience& patience, const std::string& what)
    : device_(device), abort_(abort_signal) {
  try {
    check_cuda(cudaSetDevice(device_), what);
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), what);
    check_cuda(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), what);
    connect(id, place, patience, what);
  } catch (...) {
    abort();
    release();
    throw;
  }
}

NcclEdge::~NcclEdge() {
  cudaSetDevice(device_);
  if (communicator_ != nullptr && !abort_.raised() && finalize()) {
    ncclCommDestroy(std::exchange(communicator_, nullptr));
  }
  abort();
  release();
}

void NcclEdge::connect(const ncclUniqueId& id, Place place, const Patience& patience,
                       const std::string& what) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  settle(ncclCommInitRankConfig(&communicator_, place.size, id, place.rank, &config), patience,
         what);
}

void NcclEdge::settle(ncclResult_t result, const Patience& patience, const std::string& what) {
  BackOff back_off;
  while (result == ncclInProgress) {
    patience.check();
    back_off.pause();
    check_nccl(ncclCommGetAsyncError(communicator_, &result), "tell its state");
  }
  check_state(result, what);
}

void NcclEdge::run(const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& enqueue,
                   const Patience& patience, const std::string& what) {
  if (communicator_ == nullptr) {
    throw NcclError(fmt::format("NCCL could not {}: its communicator was aborted", what));
  }
  try {
    check_cuda(cudaSetDevice(device_), what);
    // A stream has the work only when NCCL has settled: an event recorded earlier would pass early.
    settle(enqueue(communicator_, stream_), patience, what);
    check_cuda(cudaEventRecord(done_, stream_), what);
    wait_for_stream(patience, what);
  } catch (...) {
    abort();
    abort_.throw_if_raised();  // the other end may have gone for the same reason
    throw;
  }
}

void NcclEdge::wait_for_stream(const Patience& patience, const std::string& what) {
  BackOff back_off;
  while (true) {
    const auto status = cudaEventQuery(done_);
    if (status == cudaSuccess) {
      return;
    }
    if (status != cudaErrorNotReady) {
      check_cuda(status, what);
    }
    auto state = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(communicator_, &state), "tell its state");
    if (state != ncclInProgress) {
      check_state(state, what);
    }
    patience.check();
    back_off.pause();
  }
}

/// A rank that fails ends the job with its own line, which names the cause; this one only knows
/// that the other is gone.
void NcclEdge::check_state(ncclResult_t state, const std::string& what) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  BackOff back_off;
  while (state == ncclRemoteError && !abort_.raised() &&
         std::chrono::steady_clock::now() < deadline) {
    back_off.pause();
  }
  check_nccl(state, what);
}

void NcclEdge::abort() noexcept {
  if (communicator_ != nullptr) {
    ncclCommAbort(std::exchange(communicator_, nullptr));
  }
}

/// False: the other end did not come to its end in time.
bool NcclEdge::finalize() noexcept {
  constexpr std::chrono::seconds kPatience{2};
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  auto state = ncclCommFinalize(communicator_);
  BackOff back_off;
  while (state == ncclInProgress && !abort_.raised() &&
         std::chrono::steady_clock::now() < deadline) {
    back_off.pause();
    if (ncclCommGetAsyncError(communicator_, &state) != ncclSuccess) {
      return false;
    }
  }
  return state == ncclSuccess;
}

void NcclEdge::release() noexcept {
  if (done_ != nullptr) {
    cudaEventDestroy(done_);
  }
  if (stream_ != nullptr) {
    cudaStreamDestroy(stream_);
  }
}

}  // namespace stagecoach::comm
