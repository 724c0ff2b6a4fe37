#pragma once

#include "device/device.hpp"
#include "device/host/kernels.hpp"
#include "device/host/scratch.hpp"
#include "device/host/thread_pool.hpp"

namespace stagecoach::device {

/// Device::store_kv.
void store_kv(const AttentionArgs& args, const AttentionKernels& kernels, ThreadPool& pool);

/// Device::attention. Scores of minus infinity weigh nothing; a NaN or plus infinity among the
/// scores of a row makes its result NaN.
void attention(const AttentionArgs& args, const AttentionKernels& kernels, ThreadPool& pool,
               const Scratch& scratch);

/// Device::attention_partials.
void attention_partials(const AttentionArgs& args, const AttentionKernels& kernels,
                        ThreadPool& pool, const Scratch& scratch);

}  // namespace stagecoach::device
