#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "device/cuda/attention_kernels.hpp"
#include "device/cuda/attention_work.hpp"

namespace stagecoach::device::cuda {

/// Scores of the rows' tokens in pages that are not null.
void launch_scores(cudaStream_t stream, const AttentionView& view, const RowSpan& span);
/// `selection` of the rows, each from its scores of all earlier positions.
void launch_selection(cudaStream_t stream, const AttentionView& view, const RowSpan& span);

/// Values on their way, to and from pages that are not null.
struct ValuesSpan {
  const RowWork* rows = nullptr;       ///< device memory
  const ValuesWork* values = nullptr;  ///< device memory
  std::byte* const* pages = nullptr;   ///< device memory
  std::size_t count = 0;
  std::int64_t record_bytes = 0;
};
void launch_gather_values(cudaStream_t stream, const AttentionView& view, const ValuesSpan& span);
void launch_scatter_values(cudaStream_t stream, const AttentionView& view, const ValuesSpan& span);

}  // namespace stagecoach::device::cuda
