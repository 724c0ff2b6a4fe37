#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "device/cuda/attention_work.hpp"

namespace stagecoach::device::cuda {

/// K and V of the batch's rows on their way into pages.
struct KvStore {
  const float* key = nullptr;    ///< [rows, kv_heads, head_dim] with `row_stride` elements a row
  const float* value = nullptr;  ///< likewise
  std::int64_t row_stride = 0;
  KvLayout layout{};
  const SequenceWork* sequences = nullptr;  ///< device memory, as the following ones
  std::byte* const* pages = nullptr;
  const RowWork* rows = nullptr;
  std::size_t num_rows = 0;
};

/// Device::store_kv; pages that are null are skipped.
void launch_kv_store(cudaStream_t stream, const KvStore& store);

}  // namespace stagecoach::device::cuda
