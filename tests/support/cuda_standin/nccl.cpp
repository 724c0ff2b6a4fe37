#include <nccl.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/cuda_standin/calls.hpp"
#include "support/cuda_standin/communicator.hpp"
#include "support/cuda_standin/memory.hpp"
#include "support/cuda_standin/streams.hpp"

struct ncclComm {
  std::shared_ptr<cuda_standin::Communicator> state;
};

namespace cuda_standin {
namespace {

/// Transfers of a thread's group that has not ended.
struct Pending {
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<StreamState> stream;
  std::vector<Transfer> transfers;
};
struct Group {
  int depth = 0;
  std::vector<Pending> pending;
};
thread_local Group t_group;
thread_local std::string t_last_error;

ncclResult_t begin_nccl(const char* name) {
  const cudaError_t error = begin_call(name);
  if (error == cudaSuccess) {
    return ncclSuccess;
  }
  return error == cudaErrorUnknown ? ncclSystemError : ncclUnhandledCudaError;
}

ncclResult_t refuse(ncclResult_t result, const char* why) {
  t_last_error = why;
  return result;
}

std::size_t item_bytes(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
  }
  return 0;
}

ncclResult_t end_group() {
  ncclResult_t result = ncclSuccess;
  for (Pending& pending : std::exchange(t_group.pending, {})) {
    const auto one = pending.communicator->enqueue(std::move(pending.transfers), pending.stream);
    if (result == ncclSuccess || result == ncclInProgress) {
      result = one == ncclSuccess ? result : one;
    }
  }
  return result;
}

ncclResult_t transfer(const char* name, bool sends, void* data, std::size_t count,
                      ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (const auto result = begin_nccl(name); result != ncclSuccess) {
    return result;
  }
  if (comm == nullptr) {
    return refuse(ncclInvalidArgument, "there is no communicator");
  }
  const std::size_t size_bytes = count * item_bytes(type);
  const auto place = Memory::get().place(data, size_bytes);
  const auto state = stream_of(stream);
  if (peer < 0 || peer >= comm->state->ranks() || item_bytes(type) == 0 || state == nullptr) {
    return refuse(ncclInvalidArgument, "no such peer, type or stream");
  }
  if (size_bytes > 0 && place != Memory::Place::device && place != Memory::Place::pinned) {
    return refuse(ncclInvalidArgument, "not memory of a GPU, nor pinned");
  }
  ++t_group.depth;
  auto& pending = t_group.pending;
  const bool joins = !pending.empty() && pending.back().communicator == comm->state &&
                     pending.back().stream == state;
  if (!joins) {
    pending.push_back({comm->state, state, {}});
  }
  pending.back().transfers.emplace_back(sends, peer, static_cast<std::byte*>(data), size_bytes);
  return --t_group.depth == 0 ? end_group() : ncclSuccess;
}

}  // namespace
}  // namespace cuda_standin

using cuda_standin::begin_nccl;

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return begin_nccl("ncclGetVersion");
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const auto result = begin_nccl("ncclGetUniqueId"); result != ncclSuccess) {
    return result;
  }
  std::random_device random;
  for (char& byte : id->internal) {
    byte = static_cast<char>(random());
  }
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (const auto result = begin_nccl("ncclCommInitRankConfig"); result != ncclSuccess) {
    return result;
  }
  if (ranks <= 0 || rank < 0 || rank >= ranks ||
      (config != nullptr && config->magic != 0xcafebeefu)) {
    return cuda_standin::refuse(ncclInvalidArgument, "no such rank, or no such configuration");
  }
  const bool blocking = config == nullptr || config->blocking != 0;
  auto state = std::make_shared<cuda_standin::Communicator>(
      id, ranks, rank, cuda_standin::current_device(), blocking);
  const ncclResult_t result = state->begin();
  if (result != ncclSuccess && result != ncclInProgress) {
    cuda_standin::t_last_error = state->last_error();
    *comm = nullptr;
    return result;
  }
  *comm = new ncclComm{std::move(state)};
  return result;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const auto result = begin_nccl("ncclCommFinalize"); result != ncclSuccess) {
    return result;
  }
  return comm != nullptr ? comm->state->finalize() : ncclInvalidArgument;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const ncclResult_t result = begin_nccl("ncclCommDestroy");
  if (comm == nullptr) {
    return ncclSuccess;
  }
  if (!comm->state->finalized()) {
    comm->state->finalize();
  }
  comm->state->end();
  delete comm;
  return result;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const ncclResult_t result = begin_nccl("ncclCommAbort");
  if (comm == nullptr) {
    return ncclSuccess;
  }
  comm->state->abort();
  comm->state->end();
  delete comm;
  return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (const auto result = begin_nccl("ncclCommGetAsyncError"); result != ncclSuccess) {
    return result;
  }
  if (comm == nullptr) {
    return ncclInvalidArgument;
  }
  *error = comm->state->state();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* ranks) {
  *ranks = comm->state->ranks();
  return begin_nccl("ncclCommCount");
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->state->rank();
  return begin_nccl("ncclCommUserRank");
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return cuda_standin::transfer("ncclSend", true, const_cast<void*>(from), count, type, peer, comm,
                                stream);
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return cuda_standin::transfer("ncclRecv", false, to, count, type, peer, comm, stream);
}

ncclResult_t ncclGroupStart() {
  if (const auto result = begin_nccl("ncclGroupStart"); result != ncclSuccess) {
    return result;
  }
  ++cuda_standin::t_group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const ncclResult_t result = begin_nccl("ncclGroupEnd");
  auto& group = cuda_standin::t_group;
  if (group.depth == 0) {
    return cuda_standin::refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  }
  if (--group.depth > 0) {
    return result;
  }
  if (result != ncclSuccess) {
    group.pending.clear();
    return result;
  }
  return cuda_standin::end_group();
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
  if (comm != nullptr) {
    cuda_standin::t_last_error = comm->state->last_error();
  }
  return cuda_standin::t_last_error.c_str();
}
