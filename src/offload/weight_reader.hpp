#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/memory_budget.hpp"
#include "device/device.hpp"
#include "offload/weight_source.hpp"

namespace stagecoach::offload {

/// Bytes of one tensor, and where they go.
struct WeightRead {
  std::string group;
  model::TensorSpec tensor;
  std::uint64_t first_byte = 0;
  std::size_t size_bytes = 0;
  std::byte* to = nullptr;
  bool to_device = false;
};

/// DRAM that `read_weights` takes while it runs.
std::size_t read_staging_bytes(const WeightSource& source, int threads);
/// Likewise, from a source whose scratch_bytes() are these.
std::size_t read_staging_bytes(std::size_t source_scratch_bytes, int threads);

/// Reads everything in pieces, several threads at once; bytes for the device pass through staging
/// memory taken from `dram`, and so does what the source works in. `progress(done_bytes,
/// total_bytes)` is called from one thread at a time and may be empty. The first error of any
/// thread is thrown. Returns the bytes that were read.
std::uint64_t read_weights(const std::vector<WeightRead>& reads, const WeightSource& source,
                           device::Device& device, MemoryBudget& dram, int threads,
                           const std::function<void(std::uint64_t, std::uint64_t)>& progress);

}  // namespace stagecoach::offload
