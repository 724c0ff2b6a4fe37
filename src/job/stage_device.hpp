#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/abort_signal.hpp"
#include "comm/transport.hpp"
#include "device/device.hpp"
#include "job/config.hpp"

namespace stagecoach::job {

/// A value of --device.
struct DeviceChoice {
  enum class Kind { automatic, host, cuda };
  static constexpr int kByRank = -1;

  Kind kind = Kind::automatic;
  int index = kByRank;  ///< of a GPU
};

/// "auto", "host", "cuda" or "cuda:N"; ConfigError names `flag`.
DeviceChoice parse_device(const std::string& text, const std::string& flag);

/// Where one rank computes.
struct StageDevice {
  bool cuda = false;
  int index = 0;             ///< of a GPU among those that the process sees
  std::string pci_bus_id{};  ///< which GPU of the machine that is
};

/// What `text` means for this rank: by itself a GPU where there is one, and, without a number, the
/// GPUs in turn by the rank on its machine. ConfigError if there is no such GPU.
StageDevice find_device(const std::string& text, const comm::Transport& transport);

/// The device, with an arena of `memory_bytes`; 0: as much as is asked of a host, none of a GPU.
std::unique_ptr<device::Device> make_device(const StageDevice& where, const JobConfig& config,
                                            int threads, std::size_t memory_bytes,
                                            AbortSignal& abort);

/// A device in DRAM, for what the stage does with pages there.
std::unique_ptr<device::Device> make_cpu_device(const JobConfig& config, int threads,
                                                std::size_t memory_bytes, AbortSignal& abort);

}  // namespace stagecoach::job
