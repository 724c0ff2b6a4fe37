#pragma once

// What kernels that go row by row share: a block is some query heads of one KV head and one row,
// and looks at a run of pages.

#include <type_traits>

#include "device/cuda/attention_kernels.hpp"
#include "device/cuda/kernel.cuh"
#include "device/cuda/kv_numbers.cuh"
#include "device/cuda/launch.hpp"

namespace stagecoach::device::cuda {

inline constexpr int kRowThreads = 128;
inline constexpr int kChunkTokens = 64;  ///< tokens of one page that are looked at together
inline constexpr int kTokenLanes = 8;    ///< threads that share a token's score

/// Blocks of a kernel for so many query heads that a multiprocessor must have room for: as many as
/// leave each thread the registers that it needs.
constexpr int row_blocks(int heads) { return heads == 8 ? 2 : heads == 4 ? 3 : 8; }

/// Whether a row keeps an earlier position that has this score.
__device__ inline bool is_kept(const AttentionSelection& selection, float score, int position) {
  return score > selection.threshold ||
         (score == selection.threshold && position <= selection.last_equal);
}

/// Query heads that a block of a kernel for `Heads` of them has. One KV head's are cut into blocks.
struct BlockHeads {
  int kv_head;
  int first;  ///< query head
  int count;
};

template <int Heads>
__device__ inline BlockHeads block_heads(int group) {
  const int blocks = (group + Heads - 1) / Heads;
  const int kv_head = static_cast<int>(blockIdx.y) / blocks;
  const int first = static_cast<int>(blockIdx.y) % blocks * Heads;
  return {kv_head, kv_head * group + first, min(Heads, group - first)};
}

/// Queries of the block's heads into `queries`, [Heads, 8 * units], filled up with zeros.
template <int Heads>
__device__ inline void load_queries(const AttentionView& view, const BlockHeads& heads,
                                    std::int64_t row, float* queries) {
  const int head_dim = view.layout.head_dim;
  const int width = units_of(view.layout) * kUnit;
  const float* from = view.query + row * view.row_stride + heads.first * head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < Heads * width; i += kRowThreads) {
    const int head = i / width;
    const int at = i % width;
    const bool inside = head < heads.count && at < head_dim;
    queries[i] = inside ? from[head * head_dim + at] : 0.0f;
  }
}

/// `store(head, token, score)` for `count` tokens of a page from `first` on: the scaled score, by
/// one thread each. All threads of the block call it.
template <KvType Type, int Heads, typename Store>
__device__ inline void score_tokens(const AttentionView& view, const std::byte* keys,
                                    const float* queries, int first, int count, Store store) {
  const int units = units_of(view.layout);
  const int lane = static_cast<int>(threadIdx.x) % kTokenLanes;
  for (int base = 0; base < count; base += kRowThreads / kTokenLanes) {
    const int token = base + static_cast<int>(threadIdx.x) / kTokenLanes;
    float dots[Heads] = {};
    for (int unit = lane; unit < units && token < count; unit += kTokenLanes) {
      float key[kUnit];
      read_unit<Type>(view.layout, keys, first + token, unit, key);
#pragma unroll
      for (int head = 0; head < Heads; ++head) {
        const float* query = queries + (head * units + unit) * kUnit;
#pragma unroll
        for (int i = 0; i < kUnit; ++i) {
          dots[head] = fmaf(key[i], query[i], dots[head]);
        }
      }
    }
#pragma unroll
    for (int head = 0; head < Heads; ++head) {
#pragma unroll
      for (int step = kTokenLanes / 2; step > 0; step /= 2) {
        dots[head] += __shfl_xor_sync(kWholeWarp, dots[head], step);
      }
      if (lane == 0 && token < count) {
        store(head, token, dots[head] * view.scale);
      }
    }
  }
}

/// Calls `visit` with constants for the numbers of the pages and the heads of a block: a KV head's
/// pages are read once where it has at most eight query heads.
template <typename Visit>
void with_row_kernel(KvType type, int group, Visit visit) {
  const auto with_heads = [&](auto kv) {
    if (group == 1) {
      visit(kv, std::integral_constant<int, 1>{});
    } else if (group <= 4) {
      visit(kv, std::integral_constant<int, 4>{});
    } else {
      visit(kv, std::integral_constant<int, 8>{});
    }
  };
  switch (type) {
    case KvType::f16:
      return with_heads(std::integral_constant<KvType, KvType::f16>{});
    case KvType::f32:
      return with_heads(std::integral_constant<KvType, KvType::f32>{});
    case KvType::int8:
      return with_heads(std::integral_constant<KvType, KvType::int8>{});
    case KvType::int4:
      return with_heads(std::integral_constant<KvType, KvType::int4>{});
  }
}

/// The grid of a kernel for `block_heads` query heads a block.
inline LaunchShape row_launch(const AttentionView& view, const RowSpan& span, int heads) {
  const int units = (view.layout.head_dim + kUnit - 1) / kUnit;
  LaunchShape shape;
  shape.grid =
      dim3(static_cast<unsigned>(span.count),
           static_cast<unsigned>(view.layout.kv_heads * ((view.group + heads - 1) / heads)),
           static_cast<unsigned>(span.most_runs));
  shape.block = dim3(kRowThreads);
  shape.shared_bytes = sizeof(float) * static_cast<std::size_t>(heads * units * kUnit);
  return shape;
}

}  // namespace stagecoach::device::cuda
