#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stage/memory_report.hpp"

namespace stagecoach::stage {

/// Rules by which a job sets up its stages, for those too that plan one for other machines.

/// Threads that read weights while a stage loads.
inline constexpr int kReaderThreads = 4;

/// Nine tenths of what is free, for what nobody gave a number for.
constexpr std::size_t most_of(std::size_t bytes) { return bytes / 10 * 9; }

/// Tokens of one request.
struct SequenceLength {
  std::int64_t fed_prompt = 0;
  std::int64_t stored_tokens = 0;  ///< whose K and V are kept
};

/// What the requests ask of every stage.
struct JobDemand {
  KvDemand kv;
  std::int64_t longest_prompt = 0;
};

/// Pages and tokens of the longest request, and of as many of the longest ones as there are places.
JobDemand demand_of(const std::vector<SequenceLength>& requests, const BatchShape& batch);

/// What a device's scratch depends on, where the longest request has `longest_pages` pages.
device::ScratchShape scratch_shape(const StageShape& shape, std::int64_t longest_pages);

/// Whether the policy leaves all activations on the device.
bool hidden_on_device(const BatchShape& batch, const Percent& percent);

}  // namespace stagecoach::stage
