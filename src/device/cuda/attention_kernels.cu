#include <type_traits>

#include "device/cuda/attention_kernels.hpp"
#include "device/cuda/attention_rows.cuh"

namespace stagecoach::device::cuda {
namespace {

constexpr int kWarps = kRowThreads / kWarpThreads;

__device__ float minus_infinity() { return __uint_as_float(0xff800000u); }

/// A block's softmax so far; the weighted values are in its threads' registers.
template <int Heads>
struct RunState {
  float weights[Heads][kChunkTokens];  // of a chunk; below 0: its value is not added
  float max[Heads];
  float sum[Heads];
  float keep[Heads];  // what the values so far are multiplied with
};

// Each thread adds up one unit of the values, of every `lanes`-th token.
struct ValueThread {
  int unit;
  int lane;
  int lanes;
  [[nodiscard]] __device__ bool idle() const { return lane >= lanes; }
};

__device__ ValueThread value_thread(const KvLayout& layout) {
  const int units = units_of(layout);
  const int thread = static_cast<int>(threadIdx.x);
  return {thread % units, thread / units, kRowThreads / units};
}

// What the block is about.
struct RowPart {
  SequenceWork sequence;
  RowWork work;
  BlockHeads heads;
  int position;
};

// Known scores of a chunk that begins at position `start`.
template <int Heads>
__device__ void copy_scores(const RowPart& part, int start, int count, RunState<Heads>& state) {
  for (int i = static_cast<int>(threadIdx.x); i < part.heads.count * count; i += kRowThreads) {
    const int head = i / count;
    const int token = i % count;
    state.weights[head][token] =
        part.work.scores[(part.heads.first + head) * part.work.score_stride + start + token];
  }
}

__device__ float warp_max(float value) {
#pragma unroll
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(kWholeWarp, value, step);
    value = other > value ? other : value;
  }
  return value;
}

__device__ float warp_sum(float value) {
#pragma unroll
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, step);
  }
  return value;
}

// What is taken off scores before the exponential: where all weigh nothing, nothing.
__device__ float shift_of(float max) { return max == minus_infinity() ? 0.0f : max; }

// Scores of a chunk become weights; a warp does a head. NaN is never the largest, but its weight
// makes the sum NaN.
template <int Heads>
__device__ void soften_chunk(const RowPart& part, int start, int count, RunState<Heads>& state) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  for (int head = static_cast<int>(threadIdx.x) / kWarpThreads; head < part.heads.count;
       head += kWarps) {
    float* weights = state.weights[head];
    float max = minus_infinity();
    for (int token = lane; token < count; token += kWarpThreads) {
      max = weights[token] > max ? weights[token] : max;
    }
    const float before = state.max[head];
    const float chunk_max = warp_max(max);
    const float both = chunk_max > before ? chunk_max : before;
    const float shift = shift_of(both);
    AttentionSelection selection;
    if (part.work.scores != nullptr) {
      selection = part.work.selection[part.heads.first + head];
    }
    float sum = 0;
    for (int token = lane; token < count; token += kWarpThreads) {
      const float score = weights[token];
      const float weight = expf(score - shift);
      const int position = start + token;
      const bool kept = part.work.scores == nullptr || position == part.position ||
                        is_kept(selection, score, position);
      weights[token] = kept ? weight : -1.0f;
      sum += weight;
    }
    sum = warp_sum(sum);
    __syncwarp();  // all have read the maximum so far
    if (lane == 0) {
      const float keep = expf(before - shift);
      state.keep[head] = keep;
      state.max[head] = both;
      state.sum[head] = state.sum[head] * keep + sum;
    }
  }
}

// Values of tokens that no head keeps are not read: they may not be there.
template <KvType Type, int Heads>
__device__ void weigh_chunk(const KvLayout& layout, const std::byte* values, int first, int count,
                            const RunState<Heads>& state, float (&sums)[Heads][kUnit]) {
  const ValueThread thread = value_thread(layout);
#pragma unroll
  for (int head = 0; head < Heads; ++head) {
#pragma unroll
    for (int i = 0; i < kUnit; ++i) {
      sums[head][i] *= state.keep[head];
    }
  }
  for (int token = thread.lane; token < count && !thread.idle(); token += thread.lanes) {
    bool kept = false;
#pragma unroll
    for (int head = 0; head < Heads; ++head) {
      kept = kept || !(state.weights[head][token] < 0);
    }
    if (!kept) {
      continue;
    }
    float value[kUnit];
    read_unit<Type>(layout, values, first + token, thread.unit, value);
#pragma unroll
    for (int head = 0; head < Heads; ++head) {
      const float weight = state.weights[head][token];
      if (!(weight < 0)) {
#pragma unroll
        for (int i = 0; i < kUnit; ++i) {
          sums[head][i] = fmaf(weight, value[i], sums[head][i]);
        }
      }
    }
  }
}

// A page's partial result that was computed elsewhere.
template <int Heads>
__device__ void take_part(const AttentionView& view, const RowPart& part, const float* place,
                          RunState<Heads>& state, float (&sums)[Heads][kUnit]) {
  const int head_dim = view.layout.head_dim;
  const ValueThread thread = value_thread(view.layout);
  const float* from =
      place +
      (static_cast<std::int64_t>(part.work.row) * view.heads + part.heads.first) * (head_dim + 2);
  float max = 0;
  float sum = 0;
#pragma unroll
  for (int head = 0; head < Heads; ++head) {
    if (head < part.heads.count) {
      const float* values = from + static_cast<std::int64_t>(head) * (head_dim + 2);
      const float both = values[0] > state.max[head] ? values[0] : state.max[head];
      const float keep = expf(state.max[head] - shift_of(both));
      const float take = expf(values[0] - shift_of(both));
#pragma unroll
      for (int i = 0; i < kUnit; ++i) {
        const int at = thread.unit * kUnit + i;
        const bool mine = thread.lane == 0 && at < head_dim;
        sums[head][i] = sums[head][i] * keep + (mine ? values[2 + at] * take : 0.0f);
      }
      if (static_cast<int>(threadIdx.x) == head) {
        max = both;
        sum = state.sum[head] * keep + values[1] * take;
      }
    }
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < part.heads.count) {
    state.max[threadIdx.x] = max;
    state.sum[threadIdx.x] = sum;
  }
  __syncthreads();
}

// Tokens of a page that is here, as many as the row sees.
template <KvType Type, int Heads>
__device__ void take_page(const AttentionView& view, const RowPart& part, const std::byte* page,
                          int start, const float* queries, RunState<Heads>& state,
                          float (&sums)[Heads][kUnit]) {
  const KvLayout& layout = view.layout;
  const std::byte* keys = head_in_page(layout, page, part.heads.kv_head);
  const std::byte* values = head_in_page(layout, page, layout.kv_heads + part.heads.kv_head);
  const int seen = min(layout.page_tokens, part.position + 1 - start);
  for (int first = 0; first < seen; first += kChunkTokens) {
    const int count = min(kChunkTokens, seen - first);
    if (part.work.scores != nullptr) {
      copy_scores<Heads>(part, start + first, count, state);
    } else {
      score_tokens<Type, Heads>(
          view, keys, queries, first, count,
          [&](int head, int token, float score) { state.weights[head][token] = score; });
    }
    __syncthreads();
    soften_chunk<Heads>(part, start + first, count, state);
    __syncthreads();
    weigh_chunk<Type, Heads>(layout, values, first, count, state, sums);
    __syncthreads();
  }
}

// Adds up the threads' values of one head, and calls store(index, value) for each.
template <typename Store>
__device__ void fold_values(const KvLayout& layout, const float (&sums)[kUnit], float* shared,
                            Store store) {
  const int units = units_of(layout);
  const int lanes = kRowThreads / units;
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    shared[i * kRowThreads + threadIdx.x] = sums[i];
  }
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < layout.head_dim; at += kRowThreads) {
    float sum = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      sum += shared[at % kUnit * kRowThreads + lane * units + at / kUnit];
    }
    store(at, sum);
  }
  __syncthreads();
}

template <int Heads>
__device__ void clear(RunState<Heads>& state) {
  for (int i = static_cast<int>(threadIdx.x); i < Heads; i += kRowThreads) {
    state.max[i] = minus_infinity();
    state.sum[i] = 0;
    state.keep[i] = 0;
  }
  for (int i = static_cast<int>(threadIdx.x); i < Heads * kChunkTokens; i += kRowThreads) {
    state.weights[i / kChunkTokens][i % kChunkTokens] = -1.0f;  // heads that are not there
  }
}

// The results of a block: (max, sum, values) to `part_of(head)`, or values / sum to `out`.
template <int Heads>
__device__ void store_results(const AttentionView& view, const RowPart& part, float* parts,
                              std::int64_t part_stride, const RunState<Heads>& state,
                              const float (&sums)[Heads][kUnit], float* shared) {
  const int head_dim = view.layout.head_dim;
  const std::int64_t row = part.sequence.first_row + part.work.row;
#pragma unroll
  for (int head = 0; head < Heads; ++head) {
    if (head < part.heads.count) {
      if (parts == nullptr) {
        float* to = view.out + (row * view.heads + part.heads.first + head) * head_dim;
        const float sum = state.sum[head];
        fold_values(view.layout, sums[head], shared,
                    [&](int at, float value) { to[at] = value / sum; });
      } else {
        float* to = parts + head * part_stride;
        if (threadIdx.x == 0) {
          to[0] = state.max[head];
          to[1] = state.sum[head];
        }
        fold_values(view.layout, sums[head], shared,
                    [&](int at, float value) { to[2 + at] = value; });
      }
    }
  }
}

template <int Heads>
__device__ RowPart row_part(const AttentionView& view, const RowWork* rows) {
  const RowWork work = rows[blockIdx.x];
  const SequenceWork sequence = view.sequences[work.sequence];
  return {sequence, work, block_heads<Heads>(view.group), sequence.first_position + work.row};
}

// Grid: rows, blocks of query heads, runs. query [rows, heads, head_dim]; pages as kv_head_bytes
// has them. Reads K and V of the run's tokens once for up to 8 query heads: 4 bytes a number of
// head_dim and token in f16 for both; a sparse row reads 4 bytes of score a token and head instead
// of K, and those values alone that it keeps. Writes head_dim + 2 numbers a head.
template <KvType Type, int Heads>
__global__ void __launch_bounds__(kRowThreads, row_blocks(Heads))
    attend_rows(AttentionView view, const RowWork* rows) {
  __shared__ RunState<Heads> state;
  __shared__ float folded[kUnit * kRowThreads];
  const RowPart part = row_part<Heads>(view, rows);
  const int run = static_cast<int>(blockIdx.z);
  if (run >= part.work.runs) {
    return;
  }
  float* queries = dynamic_shared<float>();
  if (part.work.scores == nullptr) {
    load_queries<Heads>(view, part.heads, part.sequence.first_row + part.work.row, queries);
  }
  clear(state);
  __syncthreads();
  float sums[Heads][kUnit] = {};
  const int page_tokens = view.layout.page_tokens;
  const int pages = view.layout.run_pages;
  const int end = min((run + 1) * pages, part.position / page_tokens + 1);
  for (int page = run * pages; page < end; ++page) {
    const std::byte* data = view.pages[part.sequence.first_page + page];
    if (data == nullptr) {
      take_part<Heads>(view, part, view.places[part.sequence.first_page + page], state, sums);
    } else {
      take_page<Type, Heads>(view, part, data, page * page_tokens, queries, state, sums);
    }
  }
  const std::int64_t size = view.layout.head_dim + 2;
  float* parts = part.work.run_parts;
  if (parts != nullptr) {
    parts += (static_cast<std::int64_t>(part.heads.first) * part.work.runs + run) * size;
  }
  store_results<Heads>(view, part, parts, part.work.runs * size, state, sums, folded);
}

// Grid: rows, blocks of query heads, pages. As attend_rows, of one page.
template <KvType Type, int Heads>
__global__ void __launch_bounds__(kRowThreads, row_blocks(Heads))
    attend_page(AttentionView view, const RowWork* rows) {
  __shared__ RunState<Heads> state;
  __shared__ float folded[kUnit * kRowThreads];
  const RowPart part = row_part<Heads>(view, rows);
  const int page = static_cast<int>(blockIdx.z);
  if (page >= part.work.runs) {
    return;
  }
  const std::byte* data = view.pages[part.sequence.first_page + page];
  float* place = view.places[part.sequence.first_page + page];
  if (data == nullptr || place == nullptr) {
    return;
  }
  float* queries = dynamic_shared<float>();
  if (part.work.scores == nullptr) {
    load_queries<Heads>(view, part.heads, part.sequence.first_row + part.work.row, queries);
  }
  clear(state);
  __syncthreads();
  float sums[Heads][kUnit] = {};
  take_page<Type, Heads>(view, part, data, page * view.layout.page_tokens, queries, state, sums);
  const std::int64_t size = view.layout.head_dim + 2;
  place += (static_cast<std::int64_t>(part.work.row) * view.heads + part.heads.first) * size;
  store_results<Heads>(view, part, place, size, state, sums, folded);
}

// Grid: rows, heads. Reads head_dim + 2 numbers a run, writes head_dim.
__global__ void __launch_bounds__(kRowThreads) merge_runs(AttentionView view, const RowWork* rows) {
  const RowWork work = rows[blockIdx.x];
  if (work.run_parts == nullptr) {
    return;
  }
  const int head_dim = view.layout.head_dim;
  const int size = head_dim + 2;
  const float* parts = work.run_parts + static_cast<std::int64_t>(blockIdx.y) * work.runs * size;
  float max = minus_infinity();
  for (int run = 0; run < work.runs; ++run) {
    const float run_max = parts[run * size];
    max = run_max > max ? run_max : max;
  }
  const float shift = shift_of(max);
  const std::int64_t row = view.sequences[work.sequence].first_row + work.row;
  float* to = view.out + (row * view.heads + blockIdx.y) * head_dim;
  for (int at = static_cast<int>(threadIdx.x); at < head_dim; at += kRowThreads) {
    float sum = 0;
    float value = 0;
    for (int run = 0; run < work.runs; ++run) {
      const float take = expf(parts[run * size] - shift);
      sum = fmaf(parts[run * size + 1], take, sum);
      value = fmaf(parts[run * size + 2 + at], take, value);
    }
    to[at] = value / sum;
  }
}

}  // namespace

void launch_row_attention(cudaStream_t stream, const AttentionView& view, const RowSpan& span) {
  with_row_kernel(view.layout.type, view.group, [&](auto type, auto heads) {
    launch(stream, "attend row by row", row_launch(view, span, heads.value),
           attend_rows<type.value, heads.value>, view, span.rows);
  });
}

void launch_run_merge(cudaStream_t stream, const AttentionView& view, const RowSpan& span) {
  const dim3 grid(static_cast<unsigned>(span.count), static_cast<unsigned>(view.heads));
  launch(stream, "merge runs of pages", {grid, kRowThreads}, merge_runs, view, span.rows);
}

void launch_page_parts(cudaStream_t stream, const AttentionView& view, const RowSpan& span) {
  with_row_kernel(view.layout.type, view.group, [&](auto type, auto heads) {
    launch(stream, "attend page by page", row_launch(view, span, heads.value),
           attend_page<type.value, heads.value>, view, span.rows);
  });
}

}  // namespace stagecoach::device::cuda
