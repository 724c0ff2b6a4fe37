#include <bit>
#include <cstdint>
#include <type_traits>

#include "device/cuda/kernel.cuh"
#include "device/cuda/launch.hpp"
#include "device/cuda/packed_kernels.hpp"
#include "device/cuda/packed_product_rows.hpp"
#include "device/cuda/packed_rows.cuh"

namespace stagecoach::device::cuda {
namespace {

constexpr int kRowThreads = 256;

// Of a product: each warp has four rows of the weight, so that what is read of x serves all four.
constexpr int kProductWarps = 8;
constexpr int kProductThreads = kProductWarps * kWarpThreads;
constexpr int kWarpOutputs = 4;
constexpr int kBlockOutputs = kProductWarps * kWarpOutputs;
// x is in shared memory in pieces of this many columns: at most 8 rows * 1024 * 4 bytes.
constexpr int kPieceUnits = 128;
constexpr int kPiece = kPieceUnits * kUnit;

/// Grid (rows, chunks of the units), a thread a unit. Reads a packed row and writes 2 bytes a
/// column. kAligned: rows begin at multiples of 16. kVector: so do rows of `out`, and the columns
/// are whole eights.
template <bool kInt4, bool kAligned, bool kVector>
__global__ void __launch_bounds__(kRowThreads) widen_kernel(PackedRows rows, unsigned short* out) {
  const std::int64_t unit = static_cast<std::int64_t>(blockIdx.y) * kRowThreads + threadIdx.x;
  if (unit >= units_of(rows.columns)) {
    return;
  }
  const unsigned char* const row = rows.data + blockIdx.x * rows.row_bytes;
  const PackedUnit loaded = load_unit<kInt4, kAligned>(rows, row, unit);
  unsigned short* const to = out + blockIdx.x * rows.columns;
  unsigned words[kUnit / 2];
#pragma unroll
  for (int i = 0; i < kUnit / 2; ++i) {
    words[i] = unit_half_bits<kInt4>(loaded, 2 * i) |
               static_cast<unsigned>(unit_half_bits<kInt4>(loaded, 2 * i + 1)) << 16;
  }
  const std::int64_t first = unit_column<kInt4>(unit, 0);
  const std::int64_t second = unit_column<kInt4>(unit, kUnit / 2);
  if constexpr (kVector && kInt4) {
    // Whole eights are whole fours.
    if (first < rows.columns) {
      *reinterpret_cast<uint2*>(to + first) = make_uint2(words[0], words[1]);
    }
    if (second < rows.columns) {
      *reinterpret_cast<uint2*>(to + second) = make_uint2(words[2], words[3]);
    }
  } else if constexpr (kVector) {
    if (first < rows.columns) {
      *reinterpret_cast<uint4*>(to + first) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      const std::int64_t column = unit_column<kInt4>(unit, i);
      if (column < rows.columns) {
        to[column] = static_cast<unsigned short>(words[i / 2] >> (i % 2 * 16));
      }
    }
  }
}

/// Grid (tokens, chunks of the units), a thread a unit. Reads a packed row and 2 bytes a column,
/// writes 4.
template <bool kInt4, bool kAligned>
__global__ void __launch_bounds__(kRowThreads)
    embed_packed_kernel(PackedRows rows, const std::int32_t* tokens, const std::int32_t* positions,
                        const __half* position_table, float* out) {
  const std::int64_t unit = static_cast<std::int64_t>(blockIdx.y) * kRowThreads + threadIdx.x;
  if (unit >= units_of(rows.columns)) {
    return;
  }
  const unsigned char* const row = rows.data + tokens[blockIdx.x] * rows.row_bytes;
  const PackedUnit loaded = load_unit<kInt4, kAligned>(rows, row, unit);
  const __half* const position = position_table + positions[blockIdx.x] * rows.columns;
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    const std::int64_t column = unit_column<kInt4>(unit, i);
    if (column < rows.columns) {
      out[blockIdx.x * rows.columns + column] =
          half_bits_to_float(unit_half_bits<kInt4>(loaded, i)) + __half2float(position[column]);
    }
  }
}

struct ProductParams {
  const float* x;
  PackedRows weight;
  const __half* bias;
  float* out;
  std::int64_t out_features;
  std::int64_t out_stride;
  int rows;
  Epilogue epilogue;
};

/// Where column `column` of a piece of x lies in shared memory: the first halves of all units, then
/// the second ones, so that neighbouring threads read neighbouring sixteens of bytes.
template <bool kInt4>
__device__ int place_in_piece(int column) {
  if constexpr (kInt4) {
    const int half = column % 32 / 16;
    return half * (kPiece / 2) + column / 32 * 16 + column % 16;
  } else {
    const int half = column % kUnit / 4;
    return half * (kPiece / 2) + column / kUnit * 4 + column % 4;
  }
}

/// Columns `first` .. `first + kPiece` of x, rounded to f16; zeros past its end.
template <bool kInt4, int kRows>
__device__ void load_piece(const ProductParams& params, std::int64_t first, float* piece) {
  const std::int64_t columns = params.weight.columns;
  for (int r = 0; r < kRows; ++r) {
    for (int i = static_cast<int>(threadIdx.x); i < kPiece; i += kProductThreads) {
      const bool inside = r < params.rows && first + i < columns;
      piece[r * kPiece + place_in_piece<kInt4>(i)] =
          inside ? half_bits_to_float(input_to_half_bits(params.x[r * columns + first + i])) : 0.0f;
    }
  }
}

/// Adds unit `unit` of a piece, for all rows of x and this warp's rows of the weight.
template <bool kInt4, int kRows>
__device__ void add_unit(const float* piece, int unit, const PackedUnit (&loaded)[kWarpOutputs],
                         float (&sums)[kWarpOutputs][kRows]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float weight[kWarpOutputs][4];
#pragma unroll
    for (int o = 0; o < kWarpOutputs; ++o) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weight[o][i] = half_bits_to_float(unit_half_bits<kInt4>(loaded[o], half * 4 + i));
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 x =
          *reinterpret_cast<const float4*>(piece + r * kPiece + half * (kPiece / 2) + unit * 4);
#pragma unroll
      for (int o = 0; o < kWarpOutputs; ++o) {
        sums[o][r] = fmaf(x.x, weight[o][0], sums[o][r]);
        sums[o][r] = fmaf(x.y, weight[o][1], sums[o][r]);
        sums[o][r] = fmaf(x.z, weight[o][2], sums[o][r]);
        sums[o][r] = fmaf(x.w, weight[o][3], sums[o][r]);
      }
    }
  }
}

__device__ void store_sum(const ProductParams& params, int row, std::int64_t output, float sum) {
  float* const to = params.out + row * params.out_stride + output;
  float result = params.bias == nullptr ? sum : sum + __half2float(params.bias[output]);
  if (params.epilogue == Epilogue::add_to_out) {
    result += *to;
  } else if (params.epilogue == Epilogue::relu) {
    result = result < 0 ? 0.0f : result;  // NaN stays
  }
  *to = result;
}

/// out[rows, out_features] from x[rows, columns], a block for kBlockOutputs rows of the weight.
/// Each packed row is read once; x, 4 bytes a number, by every block, out of L2. A lane adds up its
/// units in order, then the lanes are folded: the sums' order does not depend on anything else.
/// Shared: kRows * 4 KiB.
template <bool kInt4, bool kAligned, int kRows>
__global__ void __launch_bounds__(kProductThreads, 2) product_kernel(ProductParams params) {
  float* const piece = dynamic_shared<float>();
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const std::int64_t first_output = static_cast<std::int64_t>(blockIdx.x) * kBlockOutputs +
                                    threadIdx.x / kWarpThreads * kWarpOutputs;
  const unsigned char* weight_rows[kWarpOutputs];
#pragma unroll
  for (int o = 0; o < kWarpOutputs; ++o) {
    // Past the end the last row again, for nothing.
    const std::int64_t output = min(first_output + o, params.out_features - 1);
    weight_rows[o] = params.weight.data + output * params.weight.row_bytes;
  }
  float sums[kWarpOutputs][kRows] = {};
  const std::int64_t units = units_of(params.weight.columns);
  for (std::int64_t first = 0; first < units; first += kPieceUnits) {
    __syncthreads();
    load_piece<kInt4, kRows>(params, first * kUnit, piece);
    __syncthreads();
    for (int unit = lane; unit < kPieceUnits && first + unit < units; unit += kWarpThreads) {
      PackedUnit loaded[kWarpOutputs];
#pragma unroll
      for (int o = 0; o < kWarpOutputs; ++o) {
        loaded[o] = load_unit<kInt4, kAligned>(params.weight, weight_rows[o], first + unit);
      }
      add_unit<kInt4, kRows>(piece, unit, loaded, sums);
    }
  }
#pragma unroll
  for (int o = 0; o < kWarpOutputs; ++o) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = warp_sum(sums[o][r]);
      if (lane == o * kRows + r && r < params.rows && first_output + o < params.out_features) {
        store_sum(params, r, first_output + o, sum);
      }
    }
  }
}

PackedRows packed_rows(const Weights& weights, std::int64_t columns) {
  return {.data = reinterpret_cast<const unsigned char*>(weights.data),
          .row_bytes = weights.row_bytes(columns),
          .params_bytes = row_params_bytes(weights.format, columns),
          .columns = columns,
          .group_shift = std::countr_zero(static_cast<std::uint64_t>(weights.format.group))};
}

bool aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

/// Calls chosen(int4, aligned) with both as types: a row's bytes are a multiple of 16, so all rows
/// are aligned where the first one is.
template <typename Chosen>
void choose(const Weights& weights, const Chosen& chosen) {
  const bool int4 = weights.format.packing == Packing::int4;
  if (aligned(weights.data)) {
    int4 ? chosen(std::true_type(), std::true_type()) : chosen(std::false_type(), std::true_type());
  } else {
    int4 ? chosen(std::true_type(), std::false_type())
         : chosen(std::false_type(), std::false_type());
  }
}

LaunchShape unit_shape(std::int64_t rows, std::int64_t columns) {
  const std::int64_t chunks = (units_of(columns) + kRowThreads - 1) / kRowThreads;
  return {dim3(static_cast<unsigned>(rows), static_cast<unsigned>(chunks)), dim3(kRowThreads)};
}

template <int kRows>
void launch_product(cudaStream_t stream, const Weights& weights, const ProductParams& params) {
  const std::int64_t blocks = (params.out_features + kBlockOutputs - 1) / kBlockOutputs;
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks)), dim3(kProductThreads),
                          kRows * kPiece * sizeof(float)};
  choose(weights, [&](auto int4, auto is_aligned) {
    launch(stream, "multiply with packed weights", shape,
           product_kernel<decltype(int4)::value, decltype(is_aligned)::value, kRows>, params);
  });
}

}  // namespace

void launch_widen(cudaStream_t stream, const WidenArgs& args) {
  const auto rows = packed_rows(args.weight, args.columns);
  const auto shape = unit_shape(args.rows, args.columns);
  auto* const out = reinterpret_cast<unsigned short*>(args.out);
  const bool vector = args.columns % kUnit == 0 && aligned(args.out);
  choose(args.weight, [&](auto int4, auto is_aligned) {
    constexpr bool kInt4 = decltype(int4)::value;
    constexpr bool kAligned = decltype(is_aligned)::value;
    if (vector) {
      launch(stream, "widen weights", shape, widen_kernel<kInt4, kAligned, true>, rows, out);
    } else {
      launch(stream, "widen weights", shape, widen_kernel<kInt4, kAligned, false>, rows, out);
    }
  });
}

void launch_embed_packed(cudaStream_t stream, const EmbedArgs& args, const std::int32_t* tokens,
                         const std::int32_t* positions) {
  const auto shape = unit_shape(static_cast<std::int64_t>(args.tokens.size()), args.width);
  choose(args.token_table, [&](auto int4, auto is_aligned) {
    launch(stream, "embed tokens", shape,
           embed_packed_kernel<decltype(int4)::value, decltype(is_aligned)::value>,
           packed_rows(args.token_table, args.width), tokens, positions,
           reinterpret_cast<const __half*>(args.position_table), args.out);
  });
}

void launch_packed_product(cudaStream_t stream, const LinearArgs& args) {
  if (args.rows == 0) {
    return;
  }
  const ProductParams params{.x = args.x,
                             .weight = packed_rows(args.weight, args.in_features),
                             .bias = reinterpret_cast<const __half*>(args.bias),
                             .out = args.out,
                             .out_features = args.out_features,
                             .out_stride = args.out_stride,
                             .rows = static_cast<int>(args.rows),
                             .epilogue = args.epilogue};
  static_assert(kPackedProductRows == 8);
  if (args.rows == 1) {
    launch_product<1>(stream, args.weight, params);
  } else if (args.rows == 2) {
    launch_product<2>(stream, args.weight, params);
  } else if (args.rows <= 4) {
    launch_product<4>(stream, args.weight, params);
  } else {
    launch_product<8>(stream, args.weight, params);
  }
}

}  // namespace stagecoach::device::cuda
