#pragma once

#include <cstdint>

#include "device/device.hpp"
#include "device/host/kernels.hpp"
#include "device/host/scratch.hpp"
#include "device/host/thread_pool.hpp"

namespace stagecoach::device {

/// Floats that `sample` needs for each worker.
std::int64_t sample_worker_floats(std::int64_t vocab);

/// Device::sample. Throws Error naming the row when its logits hold a NaN or infinity, or no
/// number: whatever were chosen then would be silently wrong.
void sample(const SampleArgs& args, const SampleKernels& kernels, ThreadPool& pool,
            const Scratch& scratch);

}  // namespace stagecoach::device
