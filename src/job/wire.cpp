#include "job/wire.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "comm/nccl_transport.hpp"
#include "device/cuda/cuda_devices.hpp"

namespace stagecoach::job {
namespace {

bool same_gpu(const WireEnd& a, const WireEnd& b) {
  return a.device.cuda && b.device.cuda && a.host == b.host &&
         a.device.pci_bus_id == b.device.pci_bus_id;
}

/// The first two ranks that share a GPU.
std::optional<std::pair<std::size_t, std::size_t>> sharing(const std::vector<WireEnd>& ends) {
  for (std::size_t a = 0; a < ends.size(); ++a) {
    for (std::size_t b = a + 1; b < ends.size(); ++b) {
      if (same_gpu(ends[a], ends[b])) {
        return std::pair{a, b};
      }
    }
  }
  return std::nullopt;
}

/// The first rank for which `test` does not hold.
template <typename Test>
std::optional<std::size_t> first_without(const std::vector<WireEnd>& ends, const Test& test) {
  const auto found = std::find_if_not(ends.begin(), ends.end(), test);
  return found == ends.end() ? std::nullopt
                             : std::optional(static_cast<std::size_t>(found - ends.begin()));
}

/// Why activations cannot leave from, or come to, the devices' memory; empty: they can.
std::string why_not_from_devices(const std::vector<WireEnd>& ends) {
  if (const auto rank = first_without(ends, [](const auto& end) { return end.device.cuda; })) {
    return fmt::format("rank {} on {} has no GPU", *rank, ends[*rank].host);
  }
  if (const auto rank = first_without(ends, [](const auto& end) { return end.hidden_on_device; })) {
    return fmt::format("rank {} on {} keeps activations outside its GPU", *rank, ends[*rank].host);
  }
  return {};
}

std::string why_not_nccl(TransportKind kind, const std::vector<WireEnd>& ends) {
  if (kind == TransportKind::mpi) {
    return "--transport mpi";
  }
  if (const auto rank = first_without(ends, [](const auto& end) { return end.built_with_nccl; })) {
    return fmt::format("rank {} on {} was built without NCCL", *rank, ends[*rank].host);
  }
  if (const auto both = sharing(ends)) {
    const auto& end = ends[both->first];
    return fmt::format("ranks {} and {} share cuda:{} of {}", both->first, both->second,
                       end.device.index, end.host);
  }
  return {};
}

}  // namespace

std::vector<WireEnd> gather_wire_ends(comm::Transport& transport, const WireEnd& mine) {
  ByteWriter out;
  out.put_string(mine.host);
  out.put(mine.device.cuda);
  out.put<std::int32_t>(mine.device.index);
  out.put_string(mine.device.pci_bus_id);
  out.put(mine.hidden_on_device);
  out.put(mine.built_with_nccl);
  out.put(mine.mpi_takes_device_memory);
  std::vector<WireEnd> ends;
  for (const auto& bytes :
       comm::all_gather(transport, std::move(out).take(), "the stages' devices")) {
    ByteReader in(bytes);
    auto& end = ends.emplace_back();
    end.host = in.get_string();
    end.device.cuda = in.get<bool>();
    end.device.index = in.get<std::int32_t>();
    end.device.pci_bus_id = in.get_string();
    end.hidden_on_device = in.get<bool>();
    end.built_with_nccl = in.get<bool>();
    end.mpi_takes_device_memory = in.get<bool>();
    in.expect_end();
  }
  return ends;
}

WireChoice choose_wire(TransportKind kind, const std::vector<WireEnd>& ends) {
  const bool gpus =
      std::any_of(ends.begin(), ends.end(), [](const auto& end) { return end.device.cuda; });
  if (kind == TransportKind::nccl) {
    if (std::none_of(ends.begin(), ends.end(),
                     [](const auto& end) { return end.built_with_nccl; })) {
      throw ConfigError("--transport nccl: " + comm::nccl_status());
    }
    if (!gpus) {
      throw ConfigError("--transport nccl: no rank computes on a GPU: " + device::cuda_status());
    }
  }
  if (!gpus || ends.size() < 2 || kind == TransportKind::loopback) {
    return {};
  }
  if (const auto why = why_not_from_devices(ends); !why.empty()) {
    return {Wire::host_memory, fmt::format("hidden states go over MPI through DRAM: {}", why)};
  }
  const auto why = why_not_nccl(kind, ends);
  if (why.empty()) {
    return {Wire::nccl, "hidden states go over NCCL"};
  }
  if (first_without(ends, [](const auto& end) { return end.mpi_takes_device_memory; })) {
    return {Wire::host_memory, fmt::format("hidden states go over MPI through DRAM: {}", why)};
  }
  return {Wire::device_memory,
          fmt::format("hidden states go over MPI from and to device memory: {}", why)};
}

int ranks_of_gpu(const std::vector<WireEnd>& ends, int rank) {
  const auto& mine = ends.at(static_cast<std::size_t>(rank));
  return static_cast<int>(std::count_if(ends.begin(), ends.end(),
                                        [&](const auto& end) { return same_gpu(mine, end); }));
}

}  // namespace stagecoach::job
