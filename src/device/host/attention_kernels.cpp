#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/attention_kernels.cpp"
#include <hwy/foreach_target.h>
// Must come after foreach_target.h.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "device/host/kernels.hpp"
#include "device/host/lanes-inl.hpp"

#if STAGECOACH_KERNEL_TARGET
HWY_BEFORE_NAMESPACE();
namespace stagecoach::device {
namespace HWY_NAMESPACE {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// e^x for x <= 0; NaN stays NaN (Highway's own would make it 0).
HWY_INLINE Register exponential(Register x) {
  const FloatTag tag;
  return hn::IfThenElse(hn::Eq(x, x), hn::Exp(tag, x), x);
}

float exponential(float x) { return hn::GetLane(exponential(hn::Set(FloatTag(), x))); }

// Where one item's intermediate results lie.
struct Workspace {
  Workspace(float* scratch, std::int64_t head_dim, std::int64_t page_tokens)
      : width(padded_to_lanes(head_dim)), tokens(padded_to_lanes(page_tokens)) {
    keys = scratch;
    values = keys + tokens * width;
    queries = values + tokens * width;
    sums = queries + kMaxAttentionPairs * width;
    partial = sums + kMaxAttentionPairs * width;
    scores = partial + width;
    max = scores + kMaxAttentionPairs * tokens;
    weight = max + padded_to_lanes(kMaxAttentionPairs);
  }

  std::int64_t width;
  std::int64_t tokens;
  float* keys;     // [tokens, width]
  float* values;   // [tokens, width]
  float* queries;  // [pairs, width]
  float* sums;     // [pairs, width]: the weighted values so far, relative to `max`
  float* partial;  // [width]: the weighted values of one page
  float* scores;   // [pairs, tokens]
  float* max;      // [pairs]
  float* weight;   // [pairs]: the sum of the exponentials so far
};

std::int64_t row_of(const AttentionArgs& args, const AttentionItem& item, std::int64_t pair) {
  return (item.first_pair + pair) / (args.heads / args.kv_heads);
}

std::int64_t head_of(const AttentionArgs& args, const AttentionItem& item, std::int64_t pair) {
  const std::int64_t group = args.heads / args.kv_heads;
  return item.kv_head * group + (item.first_pair + pair) % group;
}

std::int64_t position_of(const AttentionArgs& args, const AttentionItem& item, std::int64_t pair) {
  return item.sequence->first_position + row_of(args, item, pair);
}

/// Where a pair's part of a page's partial result lies: max, weight, values.
float* partial_of(const AttentionArgs& args, const AttentionItem& item, std::int64_t pair,
                  float* partials) {
  const std::int64_t row = row_of(args, item, pair);
  return partials + (row * args.heads + head_of(args, item, pair)) * (args.head_dim + 2);
}

void load_queries(const AttentionArgs& args, const AttentionItem& item, const Workspace& space) {
  for (std::int64_t pair = 0; pair < item.num_pairs; ++pair) {
    const std::int64_t row = item.sequence->first_row + row_of(args, item, pair);
    const float* query =
        args.query + row * args.row_stride + head_of(args, item, pair) * args.head_dim;
    widen_row(query, args.head_dim, space.queries + pair * space.width);
  }
}

void clear_sums(const AttentionItem& item, const Workspace& space) {
  std::fill_n(space.sums, item.num_pairs * space.width, 0.0f);
  std::fill_n(space.max, item.num_pairs, kMinusInfinity);
  std::fill_n(space.weight, item.num_pairs, 0.0f);
}

/// The keys or values of one KV head in one page, as they lie there or widened in scratch.
template <typename T>
struct Tokens {
  const T* data;
  std::int64_t stride;
  std::int64_t width;  // elements of a token that may be read
  const T* ahead;      // what is read after them, fetched at the same pace; null: nothing
};

// Into the second-level cache, which has more loads under way than the first. The processor itself
// stops fetching ahead where a KV head's keys or values end.
template <typename T>
HWY_INLINE void fetch(const T* from, std::int64_t count) {
  constexpr std::int64_t kLineElements = 64 / sizeof(T);
  for (std::int64_t i = 0; i < count; i += kLineElements) {
    __builtin_prefetch(from + i, 0, 2);
  }
}

template <typename T>
Tokens<T> tokens_in_page(const AttentionArgs& args, const AttentionItem& item,
                         const std::byte* page, bool values, const T* ahead) {
  const std::int64_t head = item.kv_head + (values ? args.kv_heads : 0);
  return {reinterpret_cast<const T*>(page) + head * args.page_tokens * args.head_dim, args.head_dim,
          args.head_dim, ahead};
}

// Widens the first `count` tokens: what lies behind them may be NaN.
template <typename T>
Tokens<float> widen_tokens(const Tokens<T>& from, std::int64_t count, float* to,
                           std::int64_t width) {
  for (std::int64_t token = 0; token < count; ++token) {
    widen_row(from.data + token * from.stride, from.width, to + token * width);
    if (from.ahead != nullptr) {
      fetch(from.ahead + token * from.stride, from.width);
    }
  }
  return {to, width, width, nullptr};
}

template <int Rows, int Columns, typename T>
HWY_INLINE void score_tile(const Workspace& space, const Tokens<T>& keys, std::int64_t pair,
                           std::int64_t token) {
  Lanes dots[Rows][Columns];
  dot_tile(space.queries + pair * space.width, space.width, keys.data + token * keys.stride,
           keys.stride, keys.width, dots);
  HWY_UNROLL(8)
  for (int i = 0; i < Rows; ++i) {
    float* scores = space.scores + (pair + i) * space.tokens + token;
    if constexpr (Columns == 4) {
      hn::StoreU(fold(dots[i][0], dots[i][1], dots[i][2], dots[i][3]), FourTag(), scores);
    } else {
      HWY_UNROLL(4)
      for (int j = 0; j < Columns; ++j) {
        scores[j] = fold(dots[i][j]);
      }
    }
  }
}

template <int Rows, typename T>
void score_rows(const Workspace& space, const Tokens<T>& keys, std::int64_t pair,
                std::int64_t count) {
  std::int64_t token = 0;
  for (; token + kTileColumns <= count; token += kTileColumns) {
    score_tile<Rows, kTileColumns>(space, keys, pair, token);
    if (keys.ahead != nullptr) {
      fetch(keys.ahead + token * keys.stride, kTileColumns * keys.stride);
    }
  }
  for (; token < count; ++token) {
    score_tile<Rows, 1>(space, keys, pair, token);
  }
}

struct PagePart {
  float max;
  float weight;
};

// Turns the scores of `tokens` tokens into exp(score - max), with zeros up to a multiple of 16.
// Scores of minus infinity weigh nothing; a NaN or plus infinity makes the result NaN.
PagePart soften(float* scores, std::int64_t tokens, float scale) {
  const FloatTag tag;
  const std::int64_t padded = padded_to_lanes(tokens);
  for (std::int64_t t = tokens; t < padded; ++t) {
    scores[t] = kMinusInfinity;
  }
  Register max = hn::Set(tag, kMinusInfinity);
  for (std::int64_t t = 0; t < padded; t += kRegister) {
    const Register score = hn::Mul(hn::Load(tag, scores + t), hn::Set(tag, scale));
    hn::Store(score, tag, scores + t);
    max = hn::IfThenElse(hn::Gt(score, max), score, max);
  }
  const float page_max = hn::GetLane(hn::MaxOfLanes(tag, max));
  const Register shift = hn::Set(tag, page_max == kMinusInfinity ? 0.0f : page_max);
  Lanes sum = set_lanes(0.0f);
  for (std::int64_t t = 0; t < padded; t += kLanes) {
    Lanes weights = load_lanes(scores + t);
    HWY_UNROLL(2)
    for (int i = 0; i < kRegisters; ++i) {
      weights.r[i] = exponential(hn::Sub(weights.r[i], shift));
    }
    store_lanes(weights, scores + t);
    sum = add(sum, weights);
  }
  return {page_max, fold(sum)};
}

// out[0 .. 16 * Groups) = the sum over tokens, in order, of weight times value.
template <int Groups, typename T>
HWY_INLINE void weigh_columns(const float* weights, const T* values, std::int64_t stride,
                              std::int64_t count, const T* ahead, float* out) {
  Lanes sums[Groups];
  HWY_UNROLL(8)
  for (int g = 0; g < Groups; ++g) {
    sums[g] = set_lanes(0.0f);
  }
  for (std::int64_t t = 0; t < count; ++t) {
    const Lanes weight = set_lanes(weights[t]);
    HWY_UNROLL(8)
    for (int g = 0; g < Groups; ++g) {
      sums[g] = multiply_add(weight, load_lanes(values + t * stride + g * kLanes), sums[g]);
    }
    if (ahead != nullptr) {
      fetch(ahead + t * stride, Groups * kLanes);
    }
  }
  HWY_UNROLL(8)
  for (int g = 0; g < Groups; ++g) {
    store_lanes(sums[g], out + g * kLanes);
  }
}

// The same for the last `rest` (< 16) columns.
template <typename T>
void weigh_rest(const float* weights, const T* values, std::int64_t stride, std::int64_t count,
                std::int64_t rest, float* out) {
  Lanes sum = set_lanes(0.0f);
  for (std::int64_t t = 0; t < count; ++t) {
    sum = multiply_add(set_lanes(weights[t]), load_lanes_partly(values + t * stride, rest), sum);
  }
  store_lanes(sum, out);
}

template <typename T>
void weigh_values(const Workspace& space, const Tokens<T>& values, const float* weights,
                  std::int64_t count) {
  constexpr int kGroups = HWY_TARGET == HWY_AVX3 ? 8 : 4;
  const T* data = values.data;
  const auto ahead = [&](std::int64_t at) {
    return values.ahead == nullptr ? nullptr : values.ahead + at;
  };
  std::int64_t at = 0;
  for (; at + kGroups * kLanes <= values.width; at += kGroups * kLanes) {
    weigh_columns<kGroups>(weights, data + at, values.stride, count, ahead(at), space.partial + at);
  }
  for (; at + kLanes <= values.width; at += kLanes) {
    weigh_columns<1>(weights, data + at, values.stride, count, ahead(at), space.partial + at);
  }
  if (at < values.width) {
    weigh_rest(weights, data + at, values.stride, count, values.width - at, space.partial + at);
  }
}

// (max, weight, sums) of the pages so far and of one more page, into the former.
void merge(const Workspace& space, std::int64_t pair, const PagePart& part) {
  const float max = std::max(space.max[pair], part.max);
  const float shift = max == kMinusInfinity ? 0.0f : max;
  const float keep = exponential(space.max[pair] - shift);
  const float take = exponential(part.max - shift);
  space.max[pair] = max;
  space.weight[pair] = space.weight[pair] * keep + part.weight * take;
  float* sums = space.sums + pair * space.width;
  for (std::int64_t i = 0; i < space.width; i += kLanes) {
    const Lanes taken = multiply(load_lanes(space.partial + i), set_lanes(take));
    store_lanes(multiply_add(load_lanes(sums + i), set_lanes(keep), taken), sums + i);
  }
}

void store_outputs(const AttentionArgs& args, const AttentionItem& item, const Workspace& space) {
  for (std::int64_t pair = 0; pair < item.num_pairs; ++pair) {
    const std::int64_t row = item.sequence->first_row + row_of(args, item, pair);
    float* out = args.out + (row * args.heads + head_of(args, item, pair)) * args.head_dim;
    const float* sums = space.sums + pair * space.width;
    for (std::int64_t i = 0; i < args.head_dim; ++i) {
      out[i] = sums[i] / space.weight[pair];
    }
  }
}

// Pairs of which few enough look at a page that widening it first does not pay.
constexpr std::int64_t kDirectPairs = 2;

/// One page's part in the results of the pairs from `first_pair` on.
struct PageVisit {
  std::int64_t start;  // position of its first token
  std::int64_t count;  // tokens that the last pair sees
  std::int64_t first_pair;
  float* partials;        // where its partial results go; null: into the sums
  const std::byte* next;  // the keys that are read after this page; null: unknown
};

void store_partial(const AttentionArgs& args, const AttentionItem& item, std::int64_t pair,
                   const PagePart& part, const Workspace& space, float* partials) {
  float* to = partial_of(args, item, pair, partials);
  to[0] = part.max;
  to[1] = part.weight;
  std::copy_n(space.partial, args.head_dim, to + 2);
}

// What `store_partial` stored, elsewhere perhaps.
void merge_partials(const AttentionArgs& args, const AttentionItem& item, std::int64_t first_pair,
                    float* partials, const Workspace& space) {
  std::fill_n(space.partial, space.width, 0.0f);
  for (std::int64_t pair = first_pair; pair < item.num_pairs; ++pair) {
    const float* from = partial_of(args, item, pair, partials);
    std::copy_n(from + 2, args.head_dim, space.partial);
    merge(space, pair, {from[0], from[1]});
  }
}

template <typename T>
void attend_tokens(const AttentionArgs& args, const AttentionItem& item, const PageVisit& visit,
                   const Tokens<T>& keys, const Tokens<T>& values, const Workspace& space) {
  std::int64_t pair = visit.first_pair;
  for (; pair + kTileRows <= item.num_pairs; pair += kTileRows) {
    score_rows<kTileRows>(space, keys, pair, visit.count);
  }
  for (; pair < item.num_pairs; ++pair) {
    score_rows<1>(space, keys, pair, visit.count);
  }
  for (pair = visit.first_pair; pair < item.num_pairs; ++pair) {
    const std::int64_t seen =
        std::min(visit.count, position_of(args, item, pair) + 1 - visit.start);
    float* scores = space.scores + pair * space.tokens;
    const PagePart part = soften(scores, seen, args.scale);
    weigh_values(space, values, scores, seen);
    if (visit.partials == nullptr) {
      merge(space, pair, part);
    } else {
      store_partial(args, item, pair, part, space, visit.partials);
    }
  }
}

template <typename T>
void visit_page(const AttentionArgs& args, const AttentionItem& item, const PageVisit& visit,
                const std::byte* page, const Workspace& space) {
  const auto values =
      tokens_in_page<T>(args, item, page, true, reinterpret_cast<const T*>(visit.next));
  const auto keys = tokens_in_page<T>(args, item, page, false, values.data);
  if (item.num_pairs - visit.first_pair <= kDirectPairs) {
    attend_tokens(args, item, visit, keys, values, space);
  } else {
    attend_tokens(args, item, visit, widen_tokens(keys, visit.count, space.keys, space.width),
                  widen_tokens(values, visit.count, space.values, space.width), space);
  }
}

void visit_page(const AttentionArgs& args, const AttentionItem& item, const PageVisit& visit,
                const std::byte* page, const Workspace& space) {
  if (args.kv_format.type == KvType::f16) {
    visit_page<Half>(args, item, visit, page, space);
  } else {
    visit_page<float>(args, item, visit, page, space);
  }
}

// Where a KV head's keys lie in a page; null if there is no such head or page.
const std::byte* keys_in_page(const AttentionArgs& args, std::int64_t kv_head,
                              const std::byte* page) {
  return kv_head >= args.kv_heads || page == nullptr
             ? nullptr
             : page + kv_head * kv_head_bytes(args.kv_format, args.page_tokens, args.head_dim);
}

void attend_page(const AttentionArgs& args, const AttentionItem& item, std::int64_t page,
                 float* scratch) {
  const Workspace space(scratch, args.head_dim, args.page_tokens);
  load_queries(args, item, space);
  const auto index = static_cast<std::size_t>(page);
  const std::int64_t start = page * args.page_tokens;
  const std::int64_t last = position_of(args, item, item.num_pairs - 1);
  const std::byte* data = item.sequence->pages[index];
  const PageVisit visit{start, std::min(args.page_tokens, last + 1 - start), 0,
                        item.sequence->partials[index], keys_in_page(args, item.kv_head + 1, data)};
  visit_page(args, item, visit, data, space);
}

void attend(const AttentionArgs& args, const AttentionItem& item, float* scratch) {
  const Workspace space(scratch, args.head_dim, args.page_tokens);
  load_queries(args, item, space);
  clear_sums(item, space);
  const std::int64_t last = position_of(args, item, item.num_pairs - 1);
  const auto& pages = item.sequence->pages;
  PageVisit visit{0, 0, 0, nullptr, nullptr};
  for (std::size_t page = 0; visit.start <= last; ++page, visit.start += args.page_tokens) {
    visit.count = std::min(args.page_tokens, last + 1 - visit.start);
    while (position_of(args, item, visit.first_pair) < visit.start) {
      ++visit.first_pair;  // positions do not fall from pair to pair
    }
    if (pages[page] == nullptr) {
      merge_partials(args, item, visit.first_pair, item.sequence->partials[page], space);
    } else {
      const bool last_page = visit.start + args.page_tokens > last;
      visit.next = keys_in_page(args, item.kv_head, last_page ? nullptr : pages[page + 1]);
      visit_page(args, item, visit, pages[page], space);
    }
  }
  store_outputs(args, item, space);
}

void store_row(const float* from, std::int64_t count, KvType type, std::byte* to) {
  if (type == KvType::f32) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  auto* halves = reinterpret_cast<Half*>(to);
  std::int64_t i = 0;
  for (; i + kRegister <= count; i += kRegister) {
    hn::StoreU(hn::DemoteTo(HalfTag(), load(from + i)), HalfTag(),
               reinterpret_cast<hwy::float16_t*>(halves + i));
  }
  for (; i < count; ++i) {
    halves[i] = to_half(from[i]);
  }
}

}  // namespace

const AttentionKernels& attention_table() {
  static constexpr AttentionKernels kTable{attend, attend_page, store_row};
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::device
HWY_AFTER_NAMESPACE();
#endif  // STAGECOACH_KERNEL_TARGET

#if HWY_ONCE
namespace stagecoach::device {

const AttentionKernels& attention_kernels(Isa isa) {
  return isa == Isa::avx512 ? N_AVX3::attention_table() : N_AVX2::attention_table();
}

std::int64_t attention_scratch_floats(std::int64_t head_dim, std::int64_t page_tokens) {
  const std::int64_t width = padded_to_lanes(head_dim);
  const std::int64_t tokens = padded_to_lanes(page_tokens);
  return 2 * tokens * width + (2 * kMaxAttentionPairs + 1) * width + kMaxAttentionPairs * tokens +
         2 * padded_to_lanes(kMaxAttentionPairs);
}

}  // namespace stagecoach::device
#endif
