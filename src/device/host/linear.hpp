#pragma once

#include <cstdint>

#include "device/device.hpp"
#include "device/host/kernels.hpp"
#include "device/host/scratch.hpp"
#include "device/host/thread_pool.hpp"

namespace stagecoach::device {

/// Floats that `linear` needs for each worker, and once for all workers.
std::int64_t linear_worker_floats();
std::int64_t linear_shared_floats(std::int64_t max_in_features);

/// Device::linear. One output element is the sum over blocks of 1024 input features, in order, of
/// their dot products, each summed over 16 lanes (lanes-inl.hpp); nothing else enters its bits.
void linear(const LinearArgs& args, const LinearKernels& kernels, ThreadPool& pool,
            const Scratch& scratch);

}  // namespace stagecoach::device
