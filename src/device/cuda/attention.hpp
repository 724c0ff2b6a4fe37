#pragma once

#include "device/cuda/operation.hpp"
#include "device/device.hpp"

namespace stagecoach::device::cuda {

/// Device's operations on KV pages. All issue their kernels and return; arguments have been
/// checked. Pages have the host's format (kv_head_bytes), and packed rows are the same bits as the
/// host's.
void store_kv(Operation& operation, const AttentionArgs& args);
/// Sequences of many rows with all their pages here, not sparse: tiles on tensor cores, q, k, v and
/// the weights of a tile in f16, sums in f32. All others: row by row, in f32. Given partial results
/// are merged in page order; what they give may differ in the last bits from what pages here give.
/// InternalError for a head_dim beyond 1024.
void attention(Operation& operation, const AttentionArgs& args);
void attention_partials(Operation& operation, const AttentionArgs& args);
void attention_scores(Operation& operation, const AttentionArgs& args);
void select_top(Operation& operation, const AttentionArgs& args);
void gather_values(Operation& operation, const AttentionArgs& args);
void scatter_values(Operation& operation, const AttentionArgs& args);

}  // namespace stagecoach::device::cuda
