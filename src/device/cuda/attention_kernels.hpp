#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "device/cuda/attention_work.hpp"

namespace stagecoach::device::cuda {

/// What the kernels of attention have in common. All pointers are to device memory.
struct AttentionView {
  const float* query = nullptr;  ///< [rows, heads, head_dim] with `row_stride` elements a row
  std::int64_t row_stride = 0;
  float* out = nullptr;  ///< [rows, heads * head_dim]
  int heads = 0;
  int group = 0;  ///< query heads of one KV head
  float scale = 1;
  KvLayout layout{};
  const SequenceWork* sequences = nullptr;
  const std::byte* const* pages = nullptr;
  float* const* places = nullptr;  ///< partial results, as SequenceRows has them
};

/// Some rows of the table, and the most runs of pages that one of them has.
struct RowSpan {
  const RowWork* rows = nullptr;  ///< device memory
  std::size_t count = 0;
  std::int32_t most_runs = 0;
};

/// Attention row by row. A page that is null is taken from its place. Rows with `scores` are
/// sparse, by their `selection`. Results of rows with one run go to `out`, of others to their
/// `run_parts`.
void launch_row_attention(cudaStream_t stream, const AttentionView& view, const RowSpan& span);
/// `run_parts` to `out`, in the runs' order.
void launch_run_merge(cudaStream_t stream, const AttentionView& view, const RowSpan& span);
/// The partial result of every page that has a place; a row's runs are its pages.
void launch_page_parts(cudaStream_t stream, const AttentionView& view, const RowSpan& span);

}  // namespace stagecoach::device::cuda
