#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <functional>
#include <string>

#include "base/abort_signal.hpp"
#include "comm/patience.hpp"

namespace stagecoach::comm {

/// One communicator and one stream: messages of one rank to another, or to itself, in one
/// direction. Used by one thread at a time, which need not be the one that made it.
class NcclEdge {
 public:
  /// Where this rank stands in a communicator of `size` ranks.
  struct Place {
    int size = 2;
    int rank = 0;
  };

  /// Waits as `patience` says until all ranks of the communicator have come. `what` it does, for
  /// errors: "connect rank 0 on host-a with rank 1 on host-a". `abort` must outlive the edge.
  NcclEdge(int device, const ncclUniqueId& id, Place place, const AbortSignal& abort,
           const Patience& patience, const std::string& what);
  NcclEdge(const NcclEdge&) = delete;
  NcclEdge& operator=(const NcclEdge&) = delete;
  NcclEdge(NcclEdge&&) = delete;
  NcclEdge& operator=(NcclEdge&&) = delete;
  /// Unless the job was aborted, lets the other end finish for a moment.
  ~NcclEdge();

  /// Enqueues by `enqueue(communicator, stream)`, which calls NCCL, and waits until the stream has
  /// done it. When that fails, or `patience` ends, the communicator is aborted.
  void run(const std::function<ncclResult_t(ncclComm_t, cudaStream_t)>& enqueue,
           const Patience& patience, const std::string& what);

 private:
  void connect(const ncclUniqueId& id, Place place, const Patience& patience,
               const std::string& what);
  /// Waits while NCCL says that it is still at `result`'s call.
  void settle(ncclResult_t result, const Patience& patience, const std::string& what);
  void wait_for_stream(const Patience& patience, const std::string& what);
  void abort() noexcept;
  void check_state(ncclResult_t state, const std::string& what) const;
  [[nodiscard]] bool finalize() noexcept;
  void release() noexcept;

  const int device_;
  const AbortSignal& abort_;
  ncclComm_t communicator_ = nullptr;  ///< null once aborted
  cudaStream_t stream_ = nullptr;
  cudaEvent_t done_ = nullptr;
};

}  // namespace stagecoach::comm
