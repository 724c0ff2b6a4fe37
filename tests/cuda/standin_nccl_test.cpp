#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "cuda/standin_case.hpp"

namespace stagecoach::test {
namespace {

using namespace std::chrono_literals;

ncclUniqueId new_id() {
  ncclUniqueId id{};
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  return id;
}

/// How a call of a communicator that does not block has ended; ncclInProgress after 10 s.
ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t result = ncclInProgress;
  for (int i = 0; i < 10000 && result == ncclInProgress; ++i) {
    EXPECT_EQ(ncclCommGetAsyncError(comm, &result), ncclSuccess);
    std::this_thread::sleep_for(1ms);
  }
  return result;
}

ncclComm_t join_without_blocking(const ncclUniqueId& id, int ranks, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, ranks, id, rank, &config), ncclInProgress);
  return comm;
}

/// Runs `work(rank)` in a thread each, on a device of its own.
void on_ranks(int ranks, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&work, rank] {
      EXPECT_CUDA(cudaSetDevice(rank));
      work(rank);
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

TEST(StandinNccl, PassesMessagesRoundARing) {
  constexpr int kRanks = 3;
  constexpr std::size_t kCount = 700001;  // more than sockets hold
  StandinCase on({.devices = kRanks});
  std::vector<int*> out;
  std::vector<int*> in;
  std::vector<cudaStream_t> streams;
  for (int rank = 0; rank < kRanks; ++rank) {
    out.push_back(on.put(std::vector<int>(kCount, rank)));
    in.push_back(on.device<int>(kCount));
    streams.push_back(on.stream());
  }
  const auto id = new_id();
  on_ranks(kRanks, [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, kRanks, id, rank), ncclSuccess);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(out[index], kCount, ncclInt32, (rank + 1) % kRanks, comm, streams[index]),
              ncclSuccess);
    EXPECT_EQ(
        ncclRecv(in[index], kCount, ncclInt32, (rank + kRanks - 1) % kRanks, comm, streams[index]),
        ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_CUDA(cudaStreamSynchronize(streams[index]));
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(on.get(in[static_cast<std::size_t>(rank)], kCount),
              std::vector<int>(kCount, (rank + kRanks - 1) % kRanks));
  }
}

TEST(StandinNccl, SendsToItselfWithinAGroup) {
  StandinCase on;
  auto* const stream = on.stream();
  auto* const from = on.put(std::vector<float>(1000, 1.5f));
  auto* const to = on.device<float>(1000);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, 1, new_id(), 0), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (std::size_t half = 0; half < 2; ++half) {
    EXPECT_EQ(ncclSend(from + 500 * half, 500, ncclFloat32, 0, comm, stream), ncclSuccess);
    EXPECT_EQ(ncclRecv(to + 500 * half, 500, ncclFloat32, 0, comm, stream), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(on.get(to, 1000), std::vector<float>(1000, 1.5f));
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// A send that nobody takes does not end, until the abort.
TEST(StandinNccl, WaitsForTheReceiverUntilItIsAborted) {
  StandinCase on({.devices = 2});
  const auto id = new_id();
  std::vector<cudaStream_t> streams = {on.stream(), on.stream()};
  auto* const x = on.put(std::vector<char>(10, 'x'));
  on_ranks(2, [&](int rank) {
    auto* const comm = join_without_blocking(id, 2, rank);
    ASSERT_EQ(settled(comm), ncclSuccess);
    if (rank == 0) {
      auto* const stream = streams[0];
      EXPECT_EQ(ncclSend(x, 10, ncclUint8, 1, comm, stream), ncclInProgress);
      ASSERT_EQ(settled(comm), ncclSuccess);
      std::this_thread::sleep_for(20ms);
      EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
      EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
      EXPECT_CUDA(cudaStreamSynchronize(stream));
    } else {
      // It sees the other one go only when it needs it.
      ncclResult_t state = ncclSuccess;
      std::this_thread::sleep_for(60ms);
      EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
      EXPECT_EQ(state, ncclSuccess);
      auto* const y = x;  // no longer read
      EXPECT_EQ(ncclSend(y, 10, ncclUint8, 0, comm, streams[1]), ncclInProgress);
      for (int i = 0; i < 2000 && state != ncclRemoteError; ++i) {
        std::this_thread::sleep_for(1ms);
        EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
      }
      EXPECT_EQ(state, ncclRemoteError);
      EXPECT_EQ(cudaStreamQuery(streams[1]), cudaErrorNotReady);
      EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
      EXPECT_CUDA(cudaStreamSynchronize(streams[1]));
    }
  });
}

TEST(StandinNccl, WaitsForARankThatNeverComesUntilItIsAborted) {
  StandinCase on;
  auto* const comm = join_without_blocking(new_id(), 2, 0);
  std::this_thread::sleep_for(20ms);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  EXPECT_EQ(state, ncclInProgress);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

TEST(StandinNccl, RefusesTwoRanksOnOneDevice) {
  StandinCase on;
  const auto id = new_id();
  const auto join = [&](int rank) {
    auto* const comm = join_without_blocking(id, 2, rank);
    EXPECT_EQ(settled(comm), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("Duplicate GPU"), std::string::npos);
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  };
  std::thread other([&] { join(1); });
  join(0);
  other.join();
}

TEST(StandinNccl, TellsOfLengthsThatDiffer) {
  StandinCase on({.devices = 2});
  const auto id = new_id();
  std::vector<cudaStream_t> streams = {on.stream(), on.stream()};
  std::vector<char*> memory = {on.device<char>(10), on.device<char>(10)};
  on_ranks(2, [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    auto* const comm = join_without_blocking(id, 2, rank);
    ASSERT_EQ(settled(comm), ncclSuccess);
    if (rank == 0) {
      EXPECT_EQ(ncclSend(memory[index], 9, ncclUint8, 1, comm, streams[index]), ncclInProgress);
      std::this_thread::sleep_for(50ms);
    } else {
      EXPECT_EQ(ncclRecv(memory[index], 10, ncclUint8, 0, comm, streams[index]), ncclInProgress);
      ncclResult_t state = ncclSuccess;
      for (int i = 0; i < 2000 && state != ncclInvalidUsage; ++i) {
        std::this_thread::sleep_for(1ms);
        EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
      }
      EXPECT_EQ(state, ncclInvalidUsage);
    }
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  });
}

// Waits for NCCL's operation are events' matter: what a stream does with the received bytes comes
// after them, and not before, with any seed.
TEST(StandinNccl, IsInTheStreamsOrderWithAnAdversary) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    StandinCase on({.devices = 2, .adversary_seed = seed});
    const auto id = new_id();
    std::vector<cudaStream_t> streams = {on.stream(), on.stream()};
    std::vector<char*> memory = {on.device<char>(100), on.device<char>(100)};
    auto* const result = on.device<char>(100);
    on_ranks(2, [&](int rank) {
      const auto index = static_cast<std::size_t>(rank);
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitRank(&comm, 2, id, rank), ncclSuccess);
      if (rank == 0) {
        EXPECT_CUDA(cudaMemsetAsync(memory[0], 'a', 100, streams[0]));
        EXPECT_EQ(ncclSend(memory[0], 100, ncclUint8, 1, comm, streams[0]), ncclSuccess);
      } else {
        EXPECT_EQ(ncclRecv(memory[1], 100, ncclUint8, 0, comm, streams[1]), ncclSuccess);
        EXPECT_CUDA(cudaMemcpyAsync(result, memory[1], 100, cudaMemcpyDeviceToDevice, streams[1]));
      }
      EXPECT_CUDA(cudaStreamSynchronize(streams[index]));
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    });
    EXPECT_EQ(on.get(result, 100), std::vector<char>(100, 'a'));
  }
}

// The other end as a program of its own, which goes without a word.
TEST(StandinNccl, ReachesOtherProcessesAndSeesThemDie) {
  cuda_standin::reset({.devices = 2});
  const auto id = new_id();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    cudaSetDevice(1);
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    char* memory = nullptr;
    const bool ready = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
                       cudaMalloc(&memory, 10) == cudaSuccess &&
                       ncclCommInitRank(&comm, 2, id, 1) == ncclSuccess &&
                       cudaMemsetAsync(memory, 'c', 10, stream) == cudaSuccess &&
                       ncclSend(memory, 10, ncclUint8, 0, comm, stream) == ncclSuccess &&
                       cudaStreamSynchronize(stream) == cudaSuccess;
    _exit(ready ? 0 : 1);
  }
  StandinCase on({.devices = 2});
  auto* const stream = on.stream();
  auto* const memory = on.device<char>(10);
  auto* const comm = join_without_blocking(id, 2, 0);
  ASSERT_EQ(settled(comm), ncclSuccess);
  EXPECT_EQ(ncclRecv(memory, 10, ncclUint8, 1, comm, stream), ncclInProgress);
  ASSERT_EQ(settled(comm), ncclSuccess);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(on.get(memory, 10), std::vector<char>(10, 'c'));
  EXPECT_EQ(ncclRecv(memory, 10, ncclUint8, 1, comm, stream), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  for (int i = 0; i < 5000 && state != ncclRemoteError; ++i) {
    std::this_thread::sleep_for(1ms);
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  }
  EXPECT_EQ(state, ncclRemoteError);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace stagecoach::test
