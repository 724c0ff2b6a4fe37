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

/// Device::attention_scores.
void attention_scores(const AttentionArgs& args, const AttentionKernels& kernels, ThreadPool& pool,
                      const Scratch& scratch);

/// Device::select_top.
void select_top(const AttentionArgs& args, const AttentionKernels& kernels, ThreadPool& pool,
                const Scratch& scratch);

/// Device::gather_values and Device::scatter_values.
void gather_values(const AttentionArgs& args, ThreadPool& pool);
void scatter_values(const AttentionArgs& args, ThreadPool& pool);

}  // namespace stagecoach::device
