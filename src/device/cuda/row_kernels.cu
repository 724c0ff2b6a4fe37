#include <cstdint>

#include "device/cuda/kernel.cuh"
#include "device/cuda/launch.hpp"
#include "device/cuda/numbers.cuh"
#include "device/cuda/row_kernels.hpp"

namespace stagecoach::device::cuda {
namespace {

// Columns of a row in chunks: a block has one of them, its threads go side by side through it.
constexpr int kRowThreads = 256;
constexpr int kPerThread = 4;
constexpr int kChunk = kRowThreads * kPerThread;

constexpr int kNormThreads = 512;
constexpr int kSmallNormThreads = 128;
constexpr std::int64_t kSmallNorm = 1024;
constexpr std::int64_t kSharedFloats = 48 * 1024 / 4;

dim3 grid_of(std::int64_t rows, std::int64_t columns) {
  return {static_cast<unsigned>(rows), static_cast<unsigned>((columns + kChunk - 1) / kChunk), 1};
}

bool aligned(const void* address, std::uintptr_t to) {
  return reinterpret_cast<std::uintptr_t>(address) % to == 0;
}

/// Calls work(column) for this thread's columns of its chunk.
template <typename Work>
__device__ void for_columns(std::int64_t columns, const Work& work) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * kChunk + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const std::int64_t column = first + i * kRowThreads;
    if (column < columns) {
      work(column);
    }
  }
}

/// Grid (tokens, chunks of the width). Reads 4 bytes and writes 4 an element.
__global__ void __launch_bounds__(kRowThreads)
    embed_kernel(const std::int32_t* tokens, const std::int32_t* positions,
                 const __half* token_table, const __half* position_table, float* out,
                 std::int64_t width) {
  const std::int64_t row = blockIdx.x;
  const __half* const token = token_table + tokens[row] * width;
  const __half* const position = position_table + positions[row] * width;
  for_columns(width, [&](std::int64_t i) {
    out[row * width + i] = __half2float(token[i]) + __half2float(position[i]);
  });
}

/// Grid (rows, chunks of the width). Reads 4 bytes and writes 4 an element.
__global__ void __launch_bounds__(kRowThreads)
    gather_kernel(const float* x, const std::int32_t* rows, float* out, std::int64_t width) {
  const std::int64_t row = blockIdx.x;
  const float* const from = x + rows[row] * width;
  for_columns(width, [&](std::int64_t i) { out[row * width + i] = from[i]; });
}

/// Grid (rows, chunks of the columns). In place; reads and writes 4 bytes an element, and the bias.
template <bool kRelu>
__global__ void __launch_bounds__(kRowThreads)
    epilogue_kernel(const __half* bias, float* out, std::int64_t columns, std::int64_t stride) {
  float* const row = out + blockIdx.x * stride;
  for_columns(columns, [&](std::int64_t i) {
    const float sum = row[i] + (bias == nullptr ? 0.0f : __half2float(bias[i]));
    row[i] = kRelu && sum < 0 ? 0.0f : sum;  // NaN stays
  });
}

/// Grid over eights of all elements. Reads 4 bytes and writes 2 an element. kAligned: both
/// addresses are multiples of 16.
template <bool kAligned>
__global__ void __launch_bounds__(kRowThreads)
    round_kernel(const float* from, unsigned short* to, std::int64_t count) {
  const std::int64_t first =
      8 * (static_cast<std::int64_t>(blockIdx.x) * kRowThreads + threadIdx.x);
  if (kAligned && first + 8 <= count) {
    const float4 a = reinterpret_cast<const float4*>(from + first)[0];
    const float4 b = reinterpret_cast<const float4*>(from + first)[1];
    const auto pair = [](float low, float high) {
      return input_to_half_bits(low) | static_cast<unsigned>(input_to_half_bits(high)) << 16;
    };
    *reinterpret_cast<uint4*>(to + first) =
        make_uint4(pair(a.x, a.y), pair(a.z, a.w), pair(b.x, b.y), pair(b.z, b.w));
    return;
  }
  for (std::int64_t i = first; i < first + 8 && i < count; ++i) {
    to[i] = input_to_half_bits(from[i]);
  }
}

/// The sum over the block, the same bits in every thread. `partial`: a float a warp.
__device__ float block_sum(float value, float* partial) {
  const float of_warp = warp_sum(value);
  __syncthreads();  // the last sum has been read
  if (threadIdx.x % kWarpThreads == 0) {
    partial[threadIdx.x / kWarpThreads] = of_warp;
  }
  __syncthreads();
  float sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / kWarpThreads; ++warp) {
    sum += partial[warp];
  }
  return sum;
}

/// Elements of a row, one or four at a time.
template <bool kVector>
struct NormAccess;
template <>
struct NormAccess<false> {
  static constexpr int kStep = 1;
  __device__ static float4 load(const float* from) { return make_float4(*from, 0, 0, 0); }
  __device__ static float4 load(const __half* from) {
    return make_float4(__half2float(*from), 0, 0, 0);
  }
  __device__ static void store(const float4& value, float* to) { *to = value.x; }
  __device__ static float sum(const float4& value) { return value.x; }
};
template <>
struct NormAccess<true> {
  static constexpr int kStep = 4;
  __device__ static float4 load(const float* from) {
    return *reinterpret_cast<const float4*>(from);
  }
  __device__ static float4 load(const __half* from) {
    const uint2 bits = *reinterpret_cast<const uint2*>(from);
    return make_float4(half_bits_to_float(bits.x & 0xffff), half_bits_to_float(bits.x >> 16),
                       half_bits_to_float(bits.y & 0xffff), half_bits_to_float(bits.y >> 16));
  }
  __device__ static void store(const float4& value, float* to) {
    *reinterpret_cast<float4*>(to) = value;
  }
  __device__ static float sum(const float4& value) {
    return (value.x + value.y) + (value.z + value.w);
  }
};

template <typename Op>
__device__ float4 each(const float4& a, const Op& op) {
  return make_float4(op(a.x), op(a.y), op(a.z), op(a.w));
}

struct NormParams {
  const float* x;
  const __half* weight;
  const __half* bias;
  float* out;
  int width;
  float epsilon;
};

/// A block a row. Reads 4 bytes and writes 4 an element; weight and bias once a row, out of L2.
/// kKept: the row is kept in shared memory (4 * width bytes), otherwise it is read three times.
/// kVector: width is a multiple of 4, rows are aligned to 16 bytes, weight and bias to 8.
template <bool kKept, bool kVector>
__global__ void __launch_bounds__(kNormThreads) layer_norm_kernel(NormParams params) {
  using Access = NormAccess<kVector>;
  __shared__ float partial[kNormThreads / kWarpThreads];
  const int width = params.width;
  const int first = static_cast<int>(threadIdx.x) * Access::kStep;
  const int step = static_cast<int>(blockDim.x) * Access::kStep;
  const float* const x = params.x + static_cast<std::int64_t>(blockIdx.x) * width;
  float* const out = params.out + static_cast<std::int64_t>(blockIdx.x) * width;
  float* const kept = kKept ? dynamic_shared<float>() : nullptr;
  const float* const row = kKept ? kept : x;  // each thread reads back what it wrote itself

  float sum = 0;
  for (int i = first; i < width; i += step) {
    const float4 value = Access::load(x + i);
    sum += Access::sum(value);
    if (kKept) {
      Access::store(value, kept + i);
    }
  }
  const float mean = block_sum(sum, partial) / static_cast<float>(width);
  float squares = 0;
  for (int i = first; i < width; i += step) {
    squares +=
        Access::sum(each(Access::load(row + i), [&](float v) { return (v - mean) * (v - mean); }));
  }
  const float variance = block_sum(squares, partial) / static_cast<float>(width);
  const float inverse = 1.0f / sqrtf(variance + params.epsilon);
  for (int i = first; i < width; i += step) {
    const float4 value = each(Access::load(row + i), [&](float v) { return (v - mean) * inverse; });
    const float4 weight = Access::load(params.weight + i);
    const float4 bias = Access::load(params.bias + i);
    Access::store(make_float4(fmaf(value.x, weight.x, bias.x), fmaf(value.y, weight.y, bias.y),
                              fmaf(value.z, weight.z, bias.z), fmaf(value.w, weight.w, bias.w)),
                  out + i);
  }
}

template <bool kKept>
void launch_norm(cudaStream_t stream, std::int64_t rows, const NormParams& params) {
  const bool vector = params.width % 4 == 0 && aligned(params.x, 16) && aligned(params.out, 16) &&
                      aligned(params.weight, 8) && aligned(params.bias, 8);
  const int threads = params.width <= kSmallNorm ? kSmallNormThreads : kNormThreads;
  const LaunchShape shape{
      dim3(static_cast<unsigned>(rows)), dim3(static_cast<unsigned>(threads)),
      kKept ? static_cast<std::size_t>(params.width) * sizeof(float) : std::size_t{0}};
  if (vector) {
    launch(stream, "normalise rows", shape, layer_norm_kernel<kKept, true>, params);
  } else {
    launch(stream, "normalise rows", shape, layer_norm_kernel<kKept, false>, params);
  }
}

const __half* halves(const Half* address) { return reinterpret_cast<const __half*>(address); }

}  // namespace

void launch_embed(cudaStream_t stream, const EmbedArgs& args, const std::int32_t* tokens,
                  const std::int32_t* positions) {
  const auto rows = static_cast<std::int64_t>(args.tokens.size());
  launch(stream, "embed tokens", {grid_of(rows, args.width), dim3(kRowThreads)}, embed_kernel,
         tokens, positions, halves(args.token_table.halves()), halves(args.position_table),
         args.out, args.width);
}

void launch_layer_norm(cudaStream_t stream, const LayerNormArgs& args) {
  // The largest rows leave room for the kernel's own shared memory.
  const NormParams params{args.x,   halves(args.weight),          halves(args.bias),
                          args.out, static_cast<int>(args.width), args.epsilon};
  if (args.width <= kSharedFloats - kNormThreads / kWarpThreads) {
    launch_norm<true>(stream, args.rows, params);
  } else {
    launch_norm<false>(stream, args.rows, params);
  }
}

void launch_gather_rows(cudaStream_t stream, const GatherRowsArgs& args, const std::int32_t* rows) {
  launch(stream, "gather rows",
         {grid_of(static_cast<std::int64_t>(args.rows.size()), args.width), dim3(kRowThreads)},
         gather_kernel, args.x, rows, args.out, args.width);
}

void launch_round(cudaStream_t stream, const float* from, Half* to, std::int64_t count) {
  const auto blocks = (count + 8 * kRowThreads - 1) / (8 * kRowThreads);
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks)), dim3(kRowThreads)};
  auto* const bits = reinterpret_cast<unsigned short*>(to);
  if (aligned(from, 16) && aligned(to, 16)) {
    launch(stream, "round a product's input", shape, round_kernel<true>, from, bits, count);
  } else {
    launch(stream, "round a product's input", shape, round_kernel<false>, from, bits, count);
  }
}

void launch_epilogue(cudaStream_t stream, const LinearArgs& args) {
  const LaunchShape shape{grid_of(args.rows, args.out_features), dim3(kRowThreads)};
  if (args.epilogue == Epilogue::relu) {
    launch(stream, "add a bias", shape, epilogue_kernel<true>, halves(args.bias), args.out,
           args.out_features, args.out_stride);
  } else if (args.bias != nullptr) {
    launch(stream, "add a bias", shape, epilogue_kernel<false>, halves(args.bias), args.out,
           args.out_features, args.out_stride);
  }
}

}  // namespace stagecoach::device::cuda
