#pragma once

#include <memory>
#include <string>

#include "base/abort_signal.hpp"
#include "comm/transport.hpp"

namespace stagecoach::comm {

/// Whether this build has NCCL.
bool built_with_nccl();

/// For people: "NCCL 2.28.9", or how to get a build that has it.
std::string nccl_status();

struct NcclOptions {
  TransportOptions transport{};
  int device = 0;          ///< of cuda_devices(); no two ranks of a machine may share a GPU
  bool to_itself = false;  ///< hidden states that a rank sends to itself go over NCCL too
};

/// `other`, with hidden states over NCCL: `send` and `receive` on Channel::hidden from each rank to
/// the next take device memory of the ranks' GPUs, whose work of before must be done. Everything
/// else goes over `other`: other channels and ranks, messages that carry their length, and the
/// length of every message, 8 bytes ahead of it. So no kernel of NCCL's waits on a GPU while the
/// sender still computes, and ranks that disagree are told so.
///
/// One communicator and one stream for each directed edge. All calls to NCCL are polled: after the
/// timeout, an abort or an error the edge's communicator is aborted, and later calls are an
/// NcclError. A message that a rank sends to itself blocks until it is received.
///
/// Collective: every rank must make one, within the timeout. ConfigError in a build without NCCL,
/// NcclError ("NCCL could not connect rank 0 with rank 1: unhandled system error
/// (ncclSystemError)") and CudaError. `other` and `abort` must outlive it.
std::unique_ptr<Transport> make_nccl_transport(Transport& other, const NcclOptions& options,
                                               const AbortSignal& abort);

}  // namespace stagecoach::comm
