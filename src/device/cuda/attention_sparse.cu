#include "device/cuda/attention_rows.cuh"
#include "device/cuda/attention_sparse.hpp"

namespace stagecoach::device::cuda {
namespace {

constexpr int kSelectThreads = 256;
constexpr int kSelectWarps = kSelectThreads / kWarpThreads;
constexpr int kDigits = 256;  // of a key: four digits of eight bits
constexpr int kLaneDigits = kDigits / kWarpThreads;

// Grid: rows, blocks of query heads, runs. Reads K of the run's tokens once for up to 8 query
// heads, 2 bytes a number in f16, and writes 4 bytes a token and head.
template <KvType Type, int Heads>
__global__ void __launch_bounds__(kRowThreads, row_blocks(Heads))
    score_rows(AttentionView view, const RowWork* rows) {
  const RowWork work = rows[blockIdx.x];
  const int run = static_cast<int>(blockIdx.z);
  if (run >= work.runs) {
    return;
  }
  const SequenceWork sequence = view.sequences[work.sequence];
  const BlockHeads heads = block_heads<Heads>(view.group);
  const int position = sequence.first_position + work.row;
  float* queries = dynamic_shared<float>();
  load_queries<Heads>(view, heads, sequence.first_row + work.row, queries);
  __syncthreads();
  const int page_tokens = view.layout.page_tokens;
  const int pages = view.layout.run_pages;
  const int end = min((run + 1) * pages, position / page_tokens + 1);
  for (int page = run * pages; page < end; ++page) {
    const std::byte* data = view.pages[sequence.first_page + page];
    if (data != nullptr) {
      const int start = page * page_tokens;
      float* to = work.scores + heads.first * work.score_stride + start;
      score_tokens<Type, Heads>(view, head_in_page(view.layout, data, heads.kv_head), queries, 0,
                                min(page_tokens, position + 1 - start),
                                [&](int head, int token, float score) {
                                  if (head < heads.count) {
                                    to[head * work.score_stride + token] = score;
                                  }
                                });
    }
  }
}

// Integers of the scores' order, in which NaN has a place as well; both zeros are alike.
__device__ unsigned key_of(float score) {
  const unsigned bits = __float_as_uint(score);
  const unsigned magnitude = bits & 0x7fffffffu;
  return bits == magnitude ? 0x80000000u + magnitude : 0x80000000u - magnitude;
}

/// What a block looks for, digit by digit.
struct Search {
  int counts[kDigits];
  unsigned prefix;  // the digits found
  int wanted;       // which of the keys with this prefix, from the highest
};

// The digit that the wanted key has next, by the first warp: lane 0 has the highest digits.
__device__ void find_digit(Search& search, int shift) {
  const int lane = static_cast<int>(threadIdx.x);
  const int top = kDigits - 1 - lane * kLaneDigits;
  int mine = 0;
  for (int i = 0; i < kLaneDigits; ++i) {
    mine += search.counts[top - i];
  }
  int above = mine;
#pragma unroll
  for (int step = 1; step < kWarpThreads; step *= 2) {
    const int other = __shfl_up_sync(kWholeWarp, above, step);
    above += lane >= step ? other : 0;
  }
  above -= mine;
  const int wanted = search.wanted;
  __syncwarp();
  if (above < wanted && wanted <= above + mine) {
    int digit = top;
    for (; above + search.counts[digit] < wanted; --digit) {
      above += search.counts[digit];
    }
    search.prefix |= static_cast<unsigned>(digit) << shift;
    search.wanted = wanted - above;
  }
}

// The `kept`-th highest key, and in `search.wanted` the how many-th of its equals that is.
__device__ unsigned find_key(const float* scores, int count, Search& search) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int shift = 24; shift >= 0; shift -= 8) {
    search.counts[thread] = 0;
    __syncthreads();
    const unsigned prefix = search.prefix;
    const unsigned known = shift == 24 ? 0u : 0xffffffffu << (shift + 8);
    for (int i = thread; i < count; i += kSelectThreads) {
      const unsigned key = key_of(scores[i]);
      if ((key & known) == prefix) {
        atomicAdd(&search.counts[(key >> shift) & 0xffu], 1);
      }
    }
    __syncthreads();
    if (thread < kWarpThreads) {
      find_digit(search, shift);
    }
    __syncthreads();
  }
  return search.prefix;
}

/// Which of the block's threads raise a flag.
struct Flags {
  int warps[kSelectWarps];
};

// How many threads before this one raise their flag, and in `total` how many do. `flags` may be
// used again after the next __syncthreads.
__device__ int count_before(bool flag, Flags& flags, int& total) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const unsigned raised = __ballot_sync(kWholeWarp, flag);
  if (lane == 0) {
    flags.warps[warp] = __popc(raised);
  }
  __syncthreads();
  int before = __popc(raised & ((1u << lane) - 1u));
  total = 0;
  for (int i = 0; i < kSelectWarps; ++i) {
    before += i < warp ? flags.warps[i] : 0;
    total += flags.warps[i];
  }
  return before;
}

// Grid: rows, heads. Reads a row's scores four times for the lowest that is kept, by counting its
// digits from the highest, and once more, as far as needed, for where it is; 4 bytes each.
__global__ void __launch_bounds__(kSelectThreads)
    select_rows(AttentionView view, const RowWork* rows) {
  __shared__ Search search;
  __shared__ Flags flags;
  const RowWork work = rows[blockIdx.x];
  const int head = static_cast<int>(blockIdx.y);
  const int count = view.sequences[work.sequence].first_position + work.row;
  const float* scores = work.scores + head * work.score_stride;
  if (work.kept == 0) {
    if (threadIdx.x == 0) {
      work.selection[head].threshold = __uint_as_float(0x7f800000u);
      work.selection[head].last_equal = -1;
    }
    return;
  }
  if (threadIdx.x == 0) {
    search.prefix = 0;
    search.wanted = work.kept;
  }
  const unsigned lowest = find_key(scores, count, search);
  int wanted = search.wanted;
  for (int base = 0; base < count && wanted > 0; base += kSelectThreads) {
    const int position = base + static_cast<int>(threadIdx.x);
    const bool equal = position < count && key_of(scores[position]) == lowest;
    int total = 0;
    const int before = count_before(equal, flags, total);
    if (equal && before + 1 == wanted) {
      work.selection[head].threshold = scores[position];
      work.selection[head].last_equal = position;
    }
    wanted -= total;
    __syncthreads();
  }
}

// Both are at multiples of 2 bytes, and so is the size.
__device__ void copy_run(std::byte* to, const std::byte* from, int size_bytes, int lane) {
  if (is_aligned(to, 4) && is_aligned(from, 4) && size_bytes % 4 == 0) {
    for (int i = lane; i < size_bytes / 4; i += kWarpThreads) {
      reinterpret_cast<unsigned*>(to)[i] = reinterpret_cast<const unsigned*>(from)[i];
    }
    return;
  }
  for (int i = lane; i < size_bytes / 2; i += kWarpThreads) {
    reinterpret_cast<std::uint16_t*>(to)[i] = reinterpret_cast<const std::uint16_t*>(from)[i];
  }
}

/// Where the values of a token lie in a page.
struct ValueRun {
  std::byte* params;
  int params_bytes;
  std::byte* numbers;
  int numbers_bytes;
};

__device__ ValueRun value_run(const KvLayout& layout, std::byte* page, int kv_head, int slot) {
  std::byte* head = page + (layout.kv_heads + kv_head) * layout.head_bytes;
  const int params = 4 * layout.groups;
  const int numbers = layout.groups > 0 ? layout.code_bytes
                                        : layout.head_dim * (layout.type == KvType::f16 ? 2 : 4);
  return {head + slot * params, params,
          head + layout.page_tokens * params + static_cast<std::int64_t>(slot) * numbers, numbers};
}

__device__ bool some_head_keeps(const AttentionView& view, const RowWork& work, int kv_head,
                                int position) {
  for (int i = 0; i < view.group; ++i) {
    const int head = kv_head * view.group + i;
    if (is_kept(work.selection[head], work.scores[head * work.score_stride + position], position)) {
      return true;
    }
  }
  return false;
}

// Grid: rows with values, KV heads. Reads the scores of all earlier positions, and reads and writes
// a token's V for each position that some head keeps, in order of positions.
__global__ void __launch_bounds__(kSelectThreads)
    gather_values(AttentionView view, ValuesSpan span) {
  __shared__ Flags flags;
  __shared__ int kept[kSelectThreads];
  const ValuesWork values = span.values[blockIdx.x];
  const RowWork work = span.rows[values.row];
  const SequenceWork sequence = view.sequences[work.sequence];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int page_tokens = view.layout.page_tokens;
  std::byte* const* pages = span.pages + sequence.first_page;
  std::byte* records =
      values.values + static_cast<std::int64_t>(kv_head) * values.records * span.record_bytes;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  int done = 0;
  for (int base = 0; base < sequence.first_position; base += kSelectThreads) {
    const int position = base + static_cast<int>(threadIdx.x);
    const bool wanted = position < sequence.first_position &&
                        pages[position / page_tokens] != nullptr &&
                        some_head_keeps(view, work, kv_head, position);
    int total = 0;
    const int before = count_before(wanted, flags, total);
    if (wanted) {
      kept[before] = position;
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x) / kWarpThreads; i < total; i += kSelectWarps) {
      const ValueRun run =
          value_run(view.layout, pages[kept[i] / page_tokens], kv_head, kept[i] % page_tokens);
      std::byte* record = records + (done + i) * span.record_bytes;
      if (lane == 0) {
        *reinterpret_cast<std::int32_t*>(record) = kept[i];
      }
      copy_run(record + 4, run.params, run.params_bytes, lane);
      copy_run(record + 4 + run.params_bytes, run.numbers, run.numbers_bytes, lane);
    }
    done += total;
    __syncthreads();
  }
  if (threadIdx.x == 0 && done < values.records) {
    *reinterpret_cast<std::int32_t*>(records + done * span.record_bytes) = -1;
  }
}

// Grid: rows with values, KV heads. Reads the positions of all records and the records before the
// first one without, and writes these.
__global__ void __launch_bounds__(kSelectThreads)
    scatter_values(AttentionView view, ValuesSpan span) {
  __shared__ int end;
  const ValuesWork values = span.values[blockIdx.x];
  const RowWork work = span.rows[values.row];
  const SequenceWork sequence = view.sequences[work.sequence];
  const int kv_head = static_cast<int>(blockIdx.y);
  const int page_tokens = view.layout.page_tokens;
  const std::byte* records =
      values.values + static_cast<std::int64_t>(kv_head) * values.records * span.record_bytes;
  const auto position_of = [&](int i) {
    return *reinterpret_cast<const std::int32_t*>(records + i * span.record_bytes);
  };
  if (threadIdx.x == 0) {
    end = values.records;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < values.records; i += kSelectThreads) {
    if (position_of(i) < 0) {
      atomicMin(&end, i);
      break;
    }
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  for (int i = static_cast<int>(threadIdx.x) / kWarpThreads; i < end; i += kSelectWarps) {
    const int position = position_of(i);
    std::byte* page = span.pages[sequence.first_page + position / page_tokens];
    if (page != nullptr) {
      const ValueRun run = value_run(view.layout, page, kv_head, position % page_tokens);
      const std::byte* record = records + i * span.record_bytes + 4;
      copy_run(run.params, record, run.params_bytes, lane);
      copy_run(run.numbers, record + run.params_bytes, run.numbers_bytes, lane);
    }
  }
}

LaunchShape values_launch(const AttentionView& view, const ValuesSpan& span) {
  LaunchShape shape;
  shape.grid = dim3(static_cast<unsigned>(span.count), static_cast<unsigned>(view.layout.kv_heads));
  shape.block = dim3(kSelectThreads);
  return shape;
}

}  // namespace

void launch_scores(cudaStream_t stream, const AttentionView& view, const RowSpan& span) {
  with_row_kernel(view.layout.type, view.group, [&](auto type, auto heads) {
    launch(stream, "score keys", row_launch(view, span, heads.value),
           score_rows<type.value, heads.value>, view, span.rows);
  });
}

void launch_selection(cudaStream_t stream, const AttentionView& view, const RowSpan& span) {
  const dim3 grid(static_cast<unsigned>(span.count), static_cast<unsigned>(view.heads));
  launch(stream, "select positions", {grid, kSelectThreads}, select_rows, view, span.rows);
}

void launch_gather_values(cudaStream_t stream, const AttentionView& view, const ValuesSpan& span) {
  launch(stream, "gather values", values_launch(view, span), gather_values, view, span);
}

void launch_scatter_values(cudaStream_t stream, const AttentionView& view, const ValuesSpan& span) {
  launch(stream, "scatter values", values_launch(view, span), scatter_values, view, span);
}

}  // namespace stagecoach::device::cuda
