#include <type_traits>

#include "device/cuda/attention_tiles.hpp"
#include "device/cuda/kernel.cuh"
#include "device/cuda/kv_numbers.cuh"
#include "device/cuda/launch.hpp"
#include "device/cuda/tensor_core.cuh"

namespace stagecoach::device::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpThreads;
constexpr int kTileTokens = 32;
// Elements between rows, so that rows next to each other lie in different banks.
constexpr int kHalfPad = 8;
constexpr int kFloatPad = 4;
constexpr int kScoreStride = kTileTokens + kFloatPad;
constexpr int kWeightStride = kTileTokens + kHalfPad;

// Of head_dim, in whole tiles.
__host__ __device__ constexpr int tile_width(int head_dim) {
  return (head_dim + kTile - 1) / kTile * kTile;
}

/// A block's shared memory.
struct TileSpace {
  __half* queries;  // [Pairs, half_stride]
  __half* tokens;   // [kTileTokens, half_stride]: keys, then values
  __half* weights;  // [Pairs, kWeightStride]
  float* scores;    // [Pairs, kScoreStride]
  float* sums;      // [Pairs, sum_stride]
  int width;
  int half_stride;
  int sum_stride;
};

template <int Pairs>
std::size_t tile_space_bytes(int head_dim) {
  const int width = tile_width(head_dim);
  const int halves = (Pairs + kTileTokens) * (width + kHalfPad) + Pairs * kWeightStride;
  const int floats = Pairs * (kScoreStride + width + kFloatPad);
  return kTileAlignment + sizeof(__half) * static_cast<std::size_t>(halves) +
         sizeof(float) * static_cast<std::size_t>(floats);
}

template <int Pairs>
__device__ TileSpace tile_space(int head_dim) {
  auto at = reinterpret_cast<std::uintptr_t>(dynamic_shared<float>());
  at = (at + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
  TileSpace space;
  space.width = tile_width(head_dim);
  space.half_stride = space.width + kHalfPad;
  space.sum_stride = space.width + kFloatPad;
  space.queries = reinterpret_cast<__half*>(at);
  space.tokens = space.queries + Pairs * space.half_stride;
  space.weights = space.tokens + kTileTokens * space.half_stride;
  space.scores = reinterpret_cast<float*>(space.weights + Pairs * kWeightStride);
  space.sums = space.scores + Pairs * kScoreStride;
  return space;
}

/// What a block computes.
struct TilePart {
  SequenceWork sequence;
  int kv_head;
  int first_pair;
  int pairs;  // of the sequence
  int last;   // position of the last row in the tile
};

__device__ int position_of(const AttentionView& view, const TilePart& part, int pair) {
  return part.sequence.first_position + pair / view.group;
}

// Where a pair's row of `query` or `out` begins, for rows of `stride` elements.
__device__ std::int64_t offset_of(const AttentionView& view, const TilePart& part, int pair,
                                  std::int64_t stride) {
  const std::int64_t row = part.sequence.first_row + pair / view.group;
  const int head = part.kv_head * view.group + pair % view.group;
  return row * stride + static_cast<std::int64_t>(head) * view.layout.head_dim;
}

// To f16; what is finite stays finite.
__device__ float cut_to_half(float value) {
  constexpr float kLargest = 65504.0f;
  const bool finite = (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u;
  const float cut = value > kLargest ? kLargest : value < -kLargest ? -kLargest : value;
  return finite ? cut : value;
}

__device__ void store_unit(const float (&numbers)[kUnit], __half* to) {
  auto* pairs = reinterpret_cast<__half2*>(to);
#pragma unroll
  for (int i = 0; i < kUnit / 2; ++i) {
    pairs[i] = __floats2half2_rn(cut_to_half(numbers[2 * i]), cut_to_half(numbers[2 * i + 1]));
  }
}

template <int Pairs>
__device__ void load_queries(const AttentionView& view, const TilePart& part,
                             const TileSpace& space) {
  const int units = space.width / kUnit;
  for (int i = static_cast<int>(threadIdx.x); i < Pairs * units; i += kThreads) {
    const int pair = part.first_pair + i / units;
    const int at = i % units * kUnit;
    float numbers[kUnit] = {};
    if (pair < part.pairs && at < view.layout.head_dim) {
      read_floats(view.query + offset_of(view, part, pair, view.row_stride) + at,
                  min(kUnit, view.layout.head_dim - at), numbers);
    }
    store_unit(numbers, space.queries + i / units * space.half_stride + at);
  }
}

// K, or V with `head` + kv_heads, of the tokens from position `base` on; zeros behind the last that
// is seen.
template <KvType Type>
__device__ void load_tokens(const AttentionView& view, const TilePart& part, int head, int base,
                            const TileSpace& space) {
  const KvLayout& layout = view.layout;
  const int units = space.width / kUnit;
  for (int i = static_cast<int>(threadIdx.x); i < kTileTokens * units; i += kThreads) {
    const int token = i / units;
    const int unit = i % units;
    const int position = base + token;
    float numbers[kUnit] = {};
    if (position <= part.last && unit * kUnit < layout.head_dim) {
      const std::byte* page = view.pages[part.sequence.first_page + position / layout.page_tokens];
      read_unit<Type>(layout, head_in_page(layout, page, head), position % layout.page_tokens, unit,
                      numbers);
    }
    store_unit(numbers, space.tokens + token * space.half_stride + unit * kUnit);
  }
}

template <int Pairs>
__device__ void score_tile(const TileSpace& space) {
  constexpr int kColumns = kTileTokens / kTile;
  for (int tile = static_cast<int>(threadIdx.x) / kWarpThreads; tile < Pairs / kTile * kColumns;
       tile += kWarps) {
    const int row = tile / kColumns * kTile;
    const int column = tile % kColumns * kTile;
    SumTile sum;
    clear_tile(sum);
    multiply_tiles<RightTileTransposed>(space.queries + row * space.half_stride,
                                        static_cast<unsigned>(space.half_stride),
                                        space.tokens + column * space.half_stride,
                                        static_cast<unsigned>(space.half_stride), space.width, sum);
    store_tile(space.scores + row * kScoreStride + column, sum, kScoreStride);
  }
}

__device__ float minus_infinity() { return __uint_as_float(0xff800000u); }

/// A row's softmax so far, the same in all threads that share it.
struct RowState {
  float max;
  float sum;
};

// Scores of a tile's tokens become weights, in f16; the sums so far are scaled to the new maximum.
// Threads next to each other share a pair. The sum is of the weights as rounded.
template <int Pairs>
__device__ void soften_tile(const AttentionView& view, const TilePart& part, int base,
                            const TileSpace& space, RowState& state) {
  constexpr int kSharing = kThreads / Pairs;
  const int pair = static_cast<int>(threadIdx.x) / kSharing;
  const int lane = static_cast<int>(threadIdx.x) % kSharing;
  const int position = position_of(view, part, part.first_pair + pair);
  float* scores = space.scores + pair * kScoreStride;
  float max = minus_infinity();
  for (int token = lane; token < kTileTokens; token += kSharing) {
    const float score = base + token <= position ? scores[token] * view.scale : minus_infinity();
    scores[token] = score;
    max = score > max ? score : max;
  }
#pragma unroll
  for (int step = kSharing / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(kWholeWarp, max, step);
    max = other > max ? other : max;
  }
  max = max > state.max ? max : state.max;
  const float shift = max == minus_infinity() ? 0.0f : max;
  const float keep = expf(state.max - shift);
  float sum = 0;
  for (int token = lane; token < kTileTokens; token += kSharing) {
    const __half weight = __float2half_rn(expf(scores[token] - shift));
    space.weights[pair * kWeightStride + token] = weight;
    sum += __half2float(weight);
  }
#pragma unroll
  for (int step = kSharing / 2; step > 0; step /= 2) {
    sum += __shfl_xor_sync(kWholeWarp, sum, step);
  }
  state.max = max;
  state.sum = state.sum * keep + sum;
  if (keep != 1.0f) {
    for (int i = lane; i < space.width; i += kSharing) {
      space.sums[pair * space.sum_stride + i] *= keep;
    }
  }
}

template <int Pairs>
__device__ void weigh_tile(const TileSpace& space) {
  const int columns = space.width / kTile;
  for (int tile = static_cast<int>(threadIdx.x) / kWarpThreads; tile < Pairs / kTile * columns;
       tile += kWarps) {
    const int row = tile / columns * kTile;
    const int column = tile % columns * kTile;
    float* to = space.sums + row * space.sum_stride + column;
    SumTile sum;
    load_tile(sum, to, static_cast<unsigned>(space.sum_stride));
    multiply_tiles<RightTile>(space.weights + row * kWeightStride, kWeightStride,
                              space.tokens + column, static_cast<unsigned>(space.half_stride),
                              kTileTokens, sum);
    store_tile(to, sum, static_cast<unsigned>(space.sum_stride));
  }
}

template <int Pairs>
__device__ void store_outputs(const AttentionView& view, const TilePart& part,
                              const TileSpace& space, const RowState& state) {
  constexpr int kSharing = kThreads / Pairs;
  const int pair = static_cast<int>(threadIdx.x) / kSharing;
  if (part.first_pair + pair >= part.pairs) {
    return;
  }
  const int head_dim = view.layout.head_dim;
  float* to = view.out + offset_of(view, part, part.first_pair + pair,
                                   static_cast<std::int64_t>(view.heads) * head_dim);
  for (int i = static_cast<int>(threadIdx.x) % kSharing; i < head_dim; i += kSharing) {
    to[i] = space.sums[pair * space.sum_stride + i] / state.sum;
  }
}

// Grid: tiles of `Pairs` pairs (row, query head), KV heads. Of each tile K and V of all positions
// that its last row sees are read once, 4 bytes a number of head_dim and token in f16 for both; q
// is read and out written once, 4 bytes a number each. Scores and sums never leave shared memory.
template <KvType Type, int Pairs>
__global__ void __launch_bounds__(kThreads)
    attend_tiles(AttentionView view, const TileWork* tiles) {
  const TileSpace space = tile_space<Pairs>(view.layout.head_dim);
  const TileWork work = tiles[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y);
  TilePart part{view.sequences[work.sequence], kv_head, work.first_pair, 0, 0};
  part.pairs = part.sequence.num_rows * view.group;
  part.last = position_of(view, part, min(part.first_pair + Pairs, part.pairs) - 1);
  load_queries<Pairs>(view, part, space);
  for (int i = static_cast<int>(threadIdx.x); i < Pairs * space.sum_stride; i += kThreads) {
    space.sums[i] = 0;
  }
  RowState state{minus_infinity(), 0};
  for (int base = 0; base <= part.last; base += kTileTokens) {
    load_tokens<Type>(view, part, kv_head, base, space);
    __syncthreads();
    score_tile<Pairs>(space);
    __syncthreads();
    load_tokens<Type>(view, part, view.layout.kv_heads + kv_head, base, space);
    soften_tile<Pairs>(view, part, base, space, state);
    __syncthreads();
    weigh_tile<Pairs>(space);
    __syncthreads();
  }
  store_outputs<Pairs>(view, part, space, state);
}

template <KvType Type, int Pairs>
void launch_pairs(cudaStream_t stream, const AttentionView& view, const TileWork* tiles,
                  std::size_t count) {
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(count), static_cast<unsigned>(view.layout.kv_heads));
  shape.block = dim3(kThreads);
  shape.shared_bytes = tile_space_bytes<Pairs>(view.layout.head_dim);
  launch(stream, "attend in tiles", shape, attend_tiles<Type, Pairs>, view, tiles);
}

template <KvType Type>
void launch_type(cudaStream_t stream, const AttentionView& view, const TileWork* tiles,
                 std::size_t count) {
  switch (tile_pairs(view.layout.head_dim)) {
    case 64:
      return launch_pairs<Type, 64>(stream, view, tiles, count);
    case 32:
      return launch_pairs<Type, 32>(stream, view, tiles, count);
    default:
      return launch_pairs<Type, 16>(stream, view, tiles, count);
  }
}

}  // namespace

void launch_tiles(cudaStream_t stream, const AttentionView& view, const TileWork* tiles,
                  std::size_t count) {
  switch (view.layout.type) {
    case KvType::f16:
      return launch_type<KvType::f16>(stream, view, tiles, count);
    case KvType::f32:
      return launch_type<KvType::f32>(stream, view, tiles, count);
    case KvType::int8:
      return launch_type<KvType::int8>(stream, view, tiles, count);
    case KvType::int4:
      return launch_type<KvType::int4>(stream, view, tiles, count);
  }
}

}  // namespace stagecoach::device::cuda
