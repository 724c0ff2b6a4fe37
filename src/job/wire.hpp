#pragma once

#include <string>
#include <vector>

#include "comm/transport.hpp"
#include "job/config.hpp"
#include "job/stage_device.hpp"

namespace stagecoach::job {

/// What decides how hidden states travel, of one rank.
struct WireEnd {
  std::string host{};
  StageDevice device{};
  bool hidden_on_device = false;  ///< no activations in DRAM or on disk
  bool built_with_nccl = false;
  bool mpi_takes_device_memory = false;
};

enum class Wire { host_memory, device_memory, nccl };

struct WireChoice {
  Wire wire = Wire::host_memory;
  std::string reason{};  ///< one line for the log; may be empty
};

/// The ends of a job, by rank, as every rank sees them. Every rank must call it.
std::vector<WireEnd> gather_wire_ends(comm::Transport& transport, const WireEnd& mine);

/// The same for all ranks: NCCL if every rank has a GPU of its own, the build has NCCL, and
/// activations are on the devices alone; else MPI from and to device memory where it can, else
/// through DRAM. `kind` mpi leaves NCCL out. ConfigError for `kind` nccl in a build without it, and
/// where no rank has a GPU.
WireChoice choose_wire(TransportKind kind, const std::vector<WireEnd>& ends);

/// Ranks that use the GPU of `ends[rank]`, itself included.
int ranks_of_gpu(const std::vector<WireEnd>& ends, int rank);

}  // namespace stagecoach::job
