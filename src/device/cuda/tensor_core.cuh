#pragma once

// Products of 16 x 16 tiles, f16 in and f32 out, by a warp. Everything that tensor cores need goes
// through here: wmma is what all of them have in common, from sm_70 on.

#include <mma.h>

#include <type_traits>

#include "device/cuda/kernel.cuh"

namespace stagecoach::device::cuda {

inline constexpr int kTile = 16;
/// What tiles begin at in shared memory.
inline constexpr unsigned kTileAlignment = 32;

using LeftTile = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, kTile, kTile, kTile, __half,
                                        nvcuda::wmma::row_major>;
using RightTile = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, kTile, kTile, kTile, __half,
                                         nvcuda::wmma::row_major>;
using RightTileTransposed = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, kTile, kTile, kTile,
                                                   __half, nvcuda::wmma::col_major>;
using SumTile = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, kTile, kTile, kTile, float>;

/// sum += left right; `depth` (a multiple of 16) columns of left. Strides in elements, multiples of
/// 8. For RightTileTransposed `right` holds the transposed matrix.
template <typename Right>
__device__ inline void multiply_tiles(const __half* left, unsigned left_stride, const __half* right,
                                      unsigned right_stride, int depth, SumTile& sum) {
  constexpr bool kTransposed = std::is_same_v<Right, RightTileTransposed>;
  for (int k = 0; k < depth; k += kTile) {
    LeftTile a;
    Right b;
    nvcuda::wmma::load_matrix_sync(a, left + k, left_stride);
    nvcuda::wmma::load_matrix_sync(
        b, kTransposed ? right + k : right + k * static_cast<int>(right_stride), right_stride);
    nvcuda::wmma::mma_sync(sum, a, b, sum);
  }
}

__device__ inline void clear_tile(SumTile& sum) { nvcuda::wmma::fill_fragment(sum, 0.0f); }
__device__ inline void load_tile(SumTile& sum, const float* from, unsigned stride) {
  nvcuda::wmma::load_matrix_sync(sum, from, stride, nvcuda::wmma::mem_row_major);
}
__device__ inline void store_tile(float* to, const SumTile& sum, unsigned stride) {
  nvcuda::wmma::store_matrix_sync(to, sum, stride, nvcuda::wmma::mem_row_major);
}

}  // namespace stagecoach::device::cuda
