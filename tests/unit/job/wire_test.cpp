#include "job/wire.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.hpp"
#include "comm/loopback_transport.hpp"

namespace stagecoach::job {
namespace {

using ::testing::HasSubstr;

WireEnd gpu(const std::string& host, int index) {
  return {.host = host,
          .device = {.cuda = true, .index = index, .pci_bus_id = "0000:0" + std::to_string(index)},
          .hidden_on_device = true,
          .built_with_nccl = true};
}

std::vector<WireEnd> three_gpus() { return {gpu("a", 0), gpu("a", 1), gpu("b", 0)}; }

std::string refusal(const std::vector<WireEnd>& ends) {
  try {
    choose_wire(TransportKind::nccl, ends);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Wire, IsNcclWhereEveryRankHasAGpuOfItsOwn) {
  for (const auto kind : {TransportKind::automatic, TransportKind::nccl}) {
    const auto choice = choose_wire(kind, three_gpus());
    EXPECT_EQ(choice.wire, Wire::nccl);
    EXPECT_EQ(choice.reason, "hidden states go over NCCL");
  }
}

TEST(Wire, OfRanksThatShareAGpuIsMpi) {
  auto ends = three_gpus();
  ends[1] = gpu("a", 0);
  for (const auto kind : {TransportKind::automatic, TransportKind::nccl}) {
    const auto choice = choose_wire(kind, ends);
    EXPECT_EQ(choice.wire, Wire::host_memory);
    EXPECT_EQ(choice.reason,
              "hidden states go over MPI through DRAM: ranks 0 and 1 share cuda:0 of a");
  }
}

/// A process may see one GPU alone, under the number 0.
TEST(Wire, ToldApartByWhatTheGpuIsNotByItsNumber) {
  auto ends = three_gpus();
  ends[1].device.index = 0;
  EXPECT_EQ(choose_wire(TransportKind::automatic, ends).wire, Wire::nccl);
  ends[1].device = {.cuda = true, .index = 5, .pci_bus_id = ends[0].device.pci_bus_id};
  EXPECT_EQ(choose_wire(TransportKind::automatic, ends).wire, Wire::host_memory);
}

TEST(Wire, NeedsEveryRanksBuild) {
  auto ends = three_gpus();
  ends[2].built_with_nccl = false;
  const auto choice = choose_wire(TransportKind::nccl, ends);
  EXPECT_EQ(choice.wire, Wire::host_memory);
  EXPECT_THAT(choice.reason, HasSubstr("rank 2 on b was built without NCCL"));
}

TEST(Wire, PassesThroughDramWhereActivationsLieThere) {
  auto ends = three_gpus();
  for (auto& end : ends) {
    end.mpi_takes_device_memory = true;
  }
  ends[1].hidden_on_device = false;
  const auto choice = choose_wire(TransportKind::automatic, ends);
  EXPECT_EQ(choice.wire, Wire::host_memory);
  EXPECT_THAT(choice.reason, HasSubstr("rank 1 on a keeps activations outside its GPU"));
}

TEST(Wire, OfMpiReachesDevicesWhereEveryMpiDoes) {
  auto ends = three_gpus();
  ends[0].mpi_takes_device_memory = ends[1].mpi_takes_device_memory = true;
  EXPECT_EQ(choose_wire(TransportKind::mpi, ends).wire, Wire::host_memory);
  ends[2].mpi_takes_device_memory = true;
  EXPECT_EQ(choose_wire(TransportKind::mpi, ends).wire, Wire::device_memory);
  EXPECT_EQ(choose_wire(TransportKind::automatic, ends).wire, Wire::nccl);
  ends[1] = ends[0];
  const auto shared = choose_wire(TransportKind::automatic, ends);
  EXPECT_EQ(shared.wire, Wire::device_memory);
  EXPECT_THAT(shared.reason, HasSubstr("share cuda:0 of a"));
}

TEST(Wire, OfHostsOrOfOneStageIsNotWorthALine) {
  const std::vector<WireEnd> hosts = {{.host = "a", .hidden_on_device = true},
                                      {.host = "b", .hidden_on_device = true}};
  for (const auto& ends : {hosts, {gpu("a", 0)}}) {
    for (const auto kind :
         {TransportKind::automatic, TransportKind::mpi, TransportKind::loopback}) {
      const auto choice = choose_wire(kind, ends);
      EXPECT_EQ(choice.wire, Wire::host_memory);
      EXPECT_EQ(choice.reason, "");
    }
  }
  EXPECT_EQ(choose_wire(TransportKind::loopback, three_gpus()).wire, Wire::host_memory);
}

TEST(Wire, AskedToBeNcclIsRefusedWhereItCannotBeAnywhere) {
  auto ends = three_gpus();
  for (auto& end : ends) {
    end.built_with_nccl = false;
  }
  EXPECT_THAT(refusal(ends), HasSubstr("--transport nccl: "));
  ends = three_gpus();
  for (auto& end : ends) {
    end.device = {};
  }
  EXPECT_THAT(refusal(ends), HasSubstr("no rank computes on a GPU"));
}

TEST(Wire, CountsTheRanksOfAGpu) {
  auto ends = three_gpus();
  EXPECT_EQ(ranks_of_gpu(ends, 0), 1);
  ends.push_back(ends[0]);
  ends.push_back({.host = "a"});
  EXPECT_EQ(ranks_of_gpu(ends, 0), 2);
  EXPECT_EQ(ranks_of_gpu(ends, 3), 2);
  EXPECT_EQ(ranks_of_gpu(ends, 2), 1) << "the same number on another machine";
}

TEST(Wire, EndsAreGatheredAsTheyAre) {
  AbortSignal abort;
  comm::LoopbackHub hub(3, {}, abort);
  auto ends = three_gpus();
  ends[1].hidden_on_device = false;
  ends[2].built_with_nccl = false;
  ends[2].mpi_takes_device_memory = true;
  std::vector<std::vector<WireEnd>> seen(3);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        seen[rank] = gather_wire_ends(*hub.transport(static_cast<int>(rank)), ends[rank]);
      });
    }
  }
  for (const auto& all : seen) {
    ASSERT_EQ(all.size(), 3u);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(all[rank].host, ends[rank].host);
      EXPECT_EQ(all[rank].device.cuda, ends[rank].device.cuda);
      EXPECT_EQ(all[rank].device.index, ends[rank].device.index);
      EXPECT_EQ(all[rank].device.pci_bus_id, ends[rank].device.pci_bus_id);
      EXPECT_EQ(all[rank].hidden_on_device, ends[rank].hidden_on_device);
      EXPECT_EQ(all[rank].built_with_nccl, ends[rank].built_with_nccl);
      EXPECT_EQ(all[rank].mpi_takes_device_memory, ends[rank].mpi_takes_device_memory);
    }
  }
}

}  // namespace
}  // namespace stagecoach::job
