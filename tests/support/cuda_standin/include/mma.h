#pragma once

// nvcuda::wmma of 16 x 16 x 16 tiles, f16 times f16 summed in f32. Which lane holds which items is
// CUDA's secret; here lane l holds items 8 l .. 8 l + 7 of the row-major tile.

#include <type_traits>

#include "cuda_fp16.h"
#include "cuda_runtime.h"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <typename Use, int M, int N, int K, typename T, typename Layout = void>
struct fragment {
  static_assert(M == 16 && N == 16 && K == 16, "only 16 x 16 x 16 tiles");
  static_assert(std::is_same_v<Use, accumulator> ? std::is_same_v<T, float>
                                                 : std::is_same_v<T, __half>,
                "only f16 factors and f32 sums");
  using element_type = T;
  static constexpr int num_elements = 8;
  T x[num_elements];
};

}  // namespace nvcuda::wmma

namespace cuda_standin {

/// What a lane brings to the product of tiles.
struct TileLane {
  float* result;
  const __half* a;
  const __half* b;
  const float* sum;
};

inline std::size_t tile_offset(int item, bool by_rows, unsigned stride) {
  const int index = lane() * 8 + item;
  const auto row = static_cast<std::size_t>(index / 16);
  const auto column = static_cast<std::size_t>(index % 16);
  return by_rows ? row * stride + column : column * stride + row;
}

}  // namespace cuda_standin

namespace nvcuda::wmma {

template <typename Use, typename T, typename Layout>
void fill_fragment(fragment<Use, 16, 16, 16, T, Layout>& tile, std::type_identity_t<T> value) {
  for (T& item : tile.x) {
    item = value;
  }
}

template <typename Use, typename T, typename Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& tile, const T* from, unsigned stride) {
  __syncwarp();
  for (int i = 0; i < tile.num_elements; ++i) {
    tile.x[i] = from[cuda_standin::tile_offset(i, std::is_same_v<Layout, row_major>, stride)];
  }
}

template <typename T>
void load_matrix_sync(fragment<accumulator, 16, 16, 16, T>& tile, const T* from, unsigned stride,
                      layout_t layout) {
  __syncwarp();
  for (int i = 0; i < tile.num_elements; ++i) {
    tile.x[i] = from[cuda_standin::tile_offset(i, layout == mem_row_major, stride)];
  }
}

template <typename T>
void store_matrix_sync(T* to, const fragment<accumulator, 16, 16, 16, T>& tile, unsigned stride,
                       layout_t layout) {
  __syncwarp();
  for (int i = 0; i < tile.num_elements; ++i) {
    to[cuda_standin::tile_offset(i, layout == mem_row_major, stride)] = tile.x[i];
  }
}

template <typename LayoutA, typename LayoutB>
void mma_sync(fragment<accumulator, 16, 16, 16, float>& result,
              const fragment<matrix_a, 16, 16, 16, __half, LayoutA>& a,
              const fragment<matrix_b, 16, 16, 16, __half, LayoutB>& b,
              const fragment<accumulator, 16, 16, 16, float>& sum) {
  const cuda_standin::TileLane own{result.x, a.x, b.x, sum.x};
  cuda_standin::warp_collective(cuda_standin::WarpOperation::multiply_tiles, 0xffffffffu,
                                reinterpret_cast<std::uintptr_t>(&own), 0);
}

}  // namespace nvcuda::wmma
