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
///
/// Why not a library's product: none takes f16 weights, and none promises this. oneDNN 2.6 has f32
/// products whose row of a result depends on the number of rows: with AVX2 wherever rows % 6 is 1,
/// 2 or 3, with AVX-512 for one row and, with the weight as [out, in], up to 15. Dot products along
/// the rows of the weight also need no transposed copy of it, so that few rows run at the speed of
/// memory.
void linear(const LinearArgs& args, const LinearKernels& kernels, ThreadPool& pool,
            const Scratch& scratch);

}  // namespace stagecoach::device
