#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/transport.hpp"
#include "device/device.hpp"
#include "plan/node_profile.hpp"

namespace stagecoach::plan {

/// How a node is measured.
struct MeasureOptions {
  device::Device* device = nullptr;  ///< of the stage
  device::Device* cpu = nullptr;     ///< stores and attends in DRAM
  bool gpu = false;
  int threads = 1;
  std::string folder;                            ///< whose disk is measured; empty: no disk
  double seconds = 1;                            ///< a figure takes about this long
  std::vector<std::int64_t> widths{1024, 4096};  ///< of the products
};

/// Measures what a stage reaches while the job's other ranks do the same: every rank calls it, and
/// they begin each figure together. Sizes are left to the caller. `tell` is called with each
/// figure.
NodeProfile measure(const MeasureOptions& options, comm::Transport& transport,
                    const std::function<void(const std::string&)>& tell);

}  // namespace stagecoach::plan
