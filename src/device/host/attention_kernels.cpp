#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/attention_kernels.cpp"
#include <hwy/foreach_target.h>
// Must come after foreach_target.h.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "device/host/attention_pack-inl.hpp"
#include "device/host/attention_select-inl.hpp"
#include "device/host/attention_tokens-inl.hpp"
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

/// Of the tokens of one page: the largest score, and the sum of e^(score - largest).
struct PagePart {
  float max;
  float weight;
};

// Sparse rows know the scores of all their positions before they read a value.
std::int64_t sparse_positions(const SequenceRows& sequence) {
  return sequence.sparse
             ? padded_to_sparse(std::int64_t{sequence.first_position} + sequence.num_rows)
             : 0;
}

// Where one item's intermediate results lie.
struct Workspace {
  Workspace(float* scratch, const AttentionArgs& args, const AttentionItem& item)
      : width(args.kv_format.packed() ? padded_to_blocks(args.head_dim)
                                      : padded_to_lanes(args.head_dim)),
        tokens(padded_to_lanes(args.page_tokens)),
        positions(sparse_positions(*item.sequence)) {
    const auto take = [&scratch](std::int64_t floats) {
      float* from = scratch;
      scratch += floats;
      return from;
    };
    keys = take(tokens * width);
    values = take(tokens * width);
    key_params = take(params_floats(tokens, width));
    value_params = take(params_floats(tokens, width));
    queries = take(kMaxAttentionPairs * width);
    sums = take(kMaxAttentionPairs * width);
    partial = take(width);
    scores = take(kMaxAttentionPairs * tokens);
    max = take(padded_to_lanes(kMaxAttentionPairs));
    weight = take(padded_to_lanes(kMaxAttentionPairs));
    row_scores = take(kMaxSparsePairs * positions);
    ranks = take(positions);
    kept = reinterpret_cast<std::int32_t*>(take(positions));
    kept_weights = take(positions);
    row_weights = take(positions);
    parts = reinterpret_cast<PagePart*>(take(2 * positions));
  }

  std::int64_t width;
  std::int64_t tokens;
  std::int64_t positions;
  float* keys;          // [tokens, width]
  float* values;        // [tokens, width]
  float* key_params;    // of packed tokens
  float* value_params;  // likewise
  float* queries;       // [pairs, width]
  float* sums;          // [pairs, width]: the weighted values so far, relative to `max`
  float* partial;       // [width]: the weighted values of one page
  float* scores;        // [pairs, tokens]
  float* max;           // [pairs]
  float* weight;        // [pairs]: the sum of the exponentials so far
  float* row_scores;    // [pairs, positions]
  float* ranks;         // [positions]
  std::int32_t* kept;   // [positions]
  float* kept_weights;  // [positions]
  float* row_weights;   // [positions]
  PagePart* parts;      // [pages]
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
    float* to = space.queries + pair * space.width;
    widen_row(query, args.head_dim, to);
    std::fill(to + padded_to_lanes(args.head_dim), to + space.width, 0.0f);
  }
}

void clear_sums(const AttentionItem& item, const Workspace& space) {
  std::fill_n(space.sums, item.num_pairs * space.width, 0.0f);
  std::fill_n(space.max, item.num_pairs, kMinusInfinity);
  std::fill_n(space.weight, item.num_pairs, 0.0f);
}

// The keys or values of one KV head in one page.
struct PageSide {
  const std::byte* data;
  const std::byte* ahead;  // what is read after them; null: unknown
  float* params;           // where packed ones have theirs widened
};

// Packed numbers, where a type of numbers is asked for.
template <Packing P>
struct Packed {};

template <typename T>
Tokens<T> open_side(const AttentionArgs& args, const PageSide& side, T /*kind*/) {
  return {reinterpret_cast<const T*>(side.data), args.head_dim, args.head_dim,
          reinterpret_cast<const T*>(side.ahead)};
}

template <Packing P>
PackedTokens<P> open_side(const AttentionArgs& args, const PageSide& side, Packed<P> /*kind*/) {
  const auto format = args.kv_format.pack();
  const std::int64_t groups = pack_groups(format, args.head_dim);
  PackedTokens<P> tokens;
  tokens.codes = side.data + 4 * groups * args.page_tokens;
  tokens.half_params = reinterpret_cast<const Half*>(side.data);
  tokens.params = side.params;
  tokens.groups = groups;
  tokens.group_blocks = format.group / kCodeBlock;
  tokens.blocks = padded_to_blocks(args.head_dim) / kCodeBlock;
  tokens.ahead = side.ahead;
  tokens.ahead_stride = kv_head_bytes(args.kv_format, 1, args.head_dim);
  return tokens;
}

// Calls `visit` with the kind of numbers that the pages hold.
template <typename Visit>
HWY_INLINE void with_kind(const KvFormat& format, Visit visit) {
  switch (format.type) {
    case KvType::f16:
      return visit(Half{});
    case KvType::f32:
      return visit(float{});
    case KvType::int8:
      return visit(Packed<Packing::int8>{});
    case KvType::int4:
      return visit(Packed<Packing::int4>{});
  }
}

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
    const Register score = hn::Mul(load(scores + t), hn::Set(tag, scale));
    hn::StoreU(score, tag, scores + t);
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
void merge_partial(const AttentionArgs& args, const AttentionItem& item, std::int64_t pair,
                   float* partials, const Workspace& space) {
  const float* from = partial_of(args, item, pair, partials);
  std::fill_n(space.partial, space.width, 0.0f);
  std::copy_n(from + 2, args.head_dim, space.partial);
  merge(space, pair, {from[0], from[1]});
}

// The part of a page, whose weighted values are in `partial`, to where it belongs.
void hand_over(const AttentionArgs& args, const AttentionItem& item, std::int64_t pair,
               const PagePart& part, const Workspace& space, float* partials) {
  if (partials == nullptr) {
    merge(space, pair, part);
  } else {
    store_partial(args, item, pair, part, space, partials);
  }
}

// Where the keys (or values) of a KV head lie in a page; null if there is no such head or page.
const std::byte* keys_in_page(const AttentionArgs& args, std::int64_t kv_head,
                              const std::byte* page) {
  return kv_head >= args.kv_heads || page == nullptr
             ? nullptr
             : page + kv_head * kv_head_bytes(args.kv_format, args.page_tokens, args.head_dim);
}
const std::byte* values_in_page(const AttentionArgs& args, std::int64_t kv_head,
                                const std::byte* page) {
  return page +
         (args.kv_heads + kv_head) * kv_head_bytes(args.kv_format, args.page_tokens, args.head_dim);
}

template <typename Keys, typename Values>
void attend_tokens(const AttentionArgs& args, const AttentionItem& item, const PageVisit& visit,
                   const Keys& keys, const Values& values, const Workspace& space) {
  score_tokens({space.queries, space.width, item.num_pairs, space.scores, space.tokens}, keys,
               visit.first_pair, visit.count);
  for (std::int64_t pair = visit.first_pair; pair < item.num_pairs; ++pair) {
    const std::int64_t seen =
        std::min(visit.count, position_of(args, item, pair) + 1 - visit.start);
    float* scores = space.scores + pair * space.tokens;
    const PagePart part = soften(scores, seen, args.scale);
    weigh_tokens(scores, values, EveryToken(), seen, space.partial);
    hand_over(args, item, pair, part, space, visit.partials);
  }
}

void visit_page(const AttentionArgs& args, const AttentionItem& item, const PageVisit& visit,
                const std::byte* page, const Workspace& space) {
  const PageSide value_side{values_in_page(args, item.kv_head, page), visit.next,
                            space.value_params};
  const PageSide key_side{keys_in_page(args, item.kv_head, page), value_side.data,
                          space.key_params};
  with_kind(args.kv_format, [&](auto kind) {
    const auto keys = open_side(args, key_side, kind);
    const auto values = open_side(args, value_side, kind);
    if (item.num_pairs - visit.first_pair <= kDirectPairs) {
      attend_tokens(args, item, visit, keys, values, space);
    } else {
      attend_tokens(args, item, visit, widen_tokens(keys, visit.count, space.keys, space.width),
                    widen_tokens(values, visit.count, space.values, space.width), space);
    }
  });
}

// The scaled scores of all pairs with the first `count` tokens of a page.
void score_keys(const AttentionArgs& args, const Queries& queries, const PageSide& side,
                std::int64_t count, const Workspace& space) {
  with_kind(args.kv_format, [&](auto kind) {
    const auto keys = open_side(args, side, kind);
    if (queries.pairs <= kDirectPairs) {
      score_tokens(queries, keys, 0, count);
    } else {
      score_tokens(queries, widen_tokens(keys, count, space.keys, space.width), 0, count);
    }
  });
  for (std::int64_t pair = 0; pair < queries.pairs; ++pair) {
    float* scores = queries.scores + pair * queries.stride;
    for (std::int64_t token = 0; token < count; ++token) {
      scores[token] *= args.scale;
    }
  }
}

/// What a sparse row of one head has found out before it reads values.
struct SparseRow {
  const float* scores;  // of all its positions
  AttentionSelection selection;
  std::int64_t position;  // its own
};

// The positions in [first, end) that a row keeps, its own included; how many.
std::int64_t list_all_kept(const SparseRow& row, std::int64_t first, std::int64_t end,
                           std::int32_t* kept) {
  std::int64_t count =
      list_kept(row.scores + first, first, std::min(end, row.position), row.selection, kept);
  if (end > row.position) {
    kept[count++] = static_cast<std::int32_t>(row.position);
  }
  return count;
}

// The weights of kept tokens, taken out of those of all tokens that a row sees from `start` on.
void take_weights(const float* all, std::int64_t start, const std::int32_t* kept,
                  std::int64_t num_kept, float* weights) {
  for (std::int64_t i = 0; i < num_kept; ++i) {
    weights[i] = all[kept[i] - start];
  }
}

// One page's weighted values of kept tokens, into `partial`.
void weigh_kept(const AttentionArgs& args, const AttentionItem& item, std::int64_t start,
                const std::byte* page, const std::int32_t* kept, std::int64_t num_kept,
                const float* weights, const Workspace& space) {
  const PageSide side{values_in_page(args, item.kv_head, page), nullptr, space.value_params};
  with_kind(args.kv_format, [&](auto kind) {
    weigh_tokens(weights, open_side(args, side, kind), ListedTokens{kept, start}, num_kept,
                 space.partial);
  });
}

// Values that will be read, where they are here.
void fetch_values(const AttentionArgs& args, const AttentionItem& item, std::int64_t position) {
  std::byte* page = item.sequence->pages[static_cast<std::size_t>(position / args.page_tokens)];
  if (page != nullptr) {
    const auto run = kv_run(args, page, args.kv_heads + item.kv_head, position % args.page_tokens);
    fetch(run.params, run.params_bytes);
    fetch(run.numbers, run.numbers_bytes);
  }
}

// Kept values under way at once.
constexpr std::int64_t kValuesAhead = 16;

// Turns a row's scores into weights, page by page: all of them before any value is looked at, so
// that no page waits for another one's.
void soften_row(const AttentionArgs& args, const AttentionItem& item, const SparseRow& row,
                const Workspace& space) {
  std::int64_t start = 0;
  for (std::size_t page = 0; start <= row.position; ++page, start += args.page_tokens) {
    if (item.sequence->pages[page] != nullptr) {
      const std::int64_t seen = std::min(args.page_tokens, row.position + 1 - start);
      std::copy_n(row.scores + start, seen, space.row_weights + start);
      space.parts[page] = soften(space.row_weights + start, seen, 1.0f);
    }
  }
}

// The result of one pair, page by page, into the sums.
void attend_sparse_row(const AttentionArgs& args, const AttentionItem& item, std::int64_t pair,
                       const SparseRow& row, const Workspace& space) {
  const std::int64_t total = list_all_kept(row, 0, row.position + 1, space.kept);
  soften_row(args, item, row, space);
  take_weights(space.row_weights, 0, space.kept, total, space.kept_weights);
  std::int64_t fetched = 0;
  std::int64_t done = 0;
  std::int64_t start = 0;
  for (std::size_t page = 0; start <= row.position; ++page, start += args.page_tokens) {
    std::int64_t end = done;
    while (end < total && space.kept[end] < start + args.page_tokens) {
      ++end;
    }
    for (; fetched < std::min(total, end + kValuesAhead); ++fetched) {
      fetch_values(args, item, space.kept[fetched]);
    }
    const std::byte* data = item.sequence->pages[page];
    if (data == nullptr) {
      merge_partial(args, item, pair, item.sequence->partials[page], space);
    } else {
      weigh_kept(args, item, start, data, space.kept + done, end - done, space.kept_weights + done,
                 space);
      merge(space, pair, space.parts[page]);
    }
    done = end;
  }
}

// What was selected from the scores of all pages, wherever they are.
SparseRow given_row(const AttentionArgs& args, const AttentionItem& item, std::int64_t pair) {
  const auto& sequence = *item.sequence;
  const std::int64_t head = head_of(args, item, pair);
  const auto positions = static_cast<std::int64_t>(sequence.pages.size()) * args.page_tokens;
  return {sequence.scores + head * positions, sequence.selection[head],
          position_of(args, item, pair)};
}

AttentionSelection select(const float* scores, std::int64_t count, std::int64_t kept,
                          float* scratch) {
  return select_top(scores, count, kept, reinterpret_cast<std::int32_t*>(scratch));
}

SparseRow found_row(const AttentionArgs& args, const AttentionItem& item, std::int64_t pair,
                    const Workspace& space) {
  const float* scores = space.row_scores + pair * space.positions;
  const std::int64_t position = position_of(args, item, pair);
  return {scores, select(scores, position, kept_positions(args.sparsity, position), space.ranks),
          position};
}

// The scores of all pairs with all positions, those that a pair does not see included.
void score_sparse_rows(const AttentionArgs& args, const AttentionItem& item,
                       const Workspace& space) {
  const std::int64_t last = position_of(args, item, item.num_pairs - 1);
  const auto& pages = item.sequence->pages;
  std::int64_t start = 0;
  for (std::size_t page = 0; start <= last; ++page, start += args.page_tokens) {
    const bool last_page = start + args.page_tokens > last;
    const PageSide side{keys_in_page(args, item.kv_head, pages[page]),
                        keys_in_page(args, item.kv_head, last_page ? nullptr : pages[page + 1]),
                        space.key_params};
    score_keys(
        args,
        {space.queries, space.width, item.num_pairs, space.row_scores + start, space.positions},
        side, std::min(args.page_tokens, last + 1 - start), space);
  }
}

void attend_sparse(const AttentionArgs& args, const AttentionItem& item, const Workspace& space) {
  const bool given = item.sequence->selection != nullptr;
  if (!given) {
    load_queries(args, item, space);
    score_sparse_rows(args, item, space);
  }
  for (std::int64_t pair = 0; pair < item.num_pairs; ++pair) {
    const SparseRow row = given ? given_row(args, item, pair) : found_row(args, item, pair, space);
    attend_sparse_row(args, item, pair, row, space);
  }
}

void attend_dense(const AttentionArgs& args, const AttentionItem& item, const Workspace& space) {
  load_queries(args, item, space);
  const std::int64_t last = position_of(args, item, item.num_pairs - 1);
  const auto& pages = item.sequence->pages;
  PageVisit visit{0, 0, 0, nullptr, nullptr};
  for (std::size_t page = 0; visit.start <= last; ++page, visit.start += args.page_tokens) {
    visit.count = std::min(args.page_tokens, last + 1 - visit.start);
    while (position_of(args, item, visit.first_pair) < visit.start) {
      ++visit.first_pair;  // positions do not fall from pair to pair
    }
    if (pages[page] == nullptr) {
      for (std::int64_t pair = visit.first_pair; pair < item.num_pairs; ++pair) {
        merge_partial(args, item, pair, item.sequence->partials[page], space);
      }
    } else {
      const bool last_page = visit.start + args.page_tokens > last;
      visit.next = keys_in_page(args, item.kv_head, last_page ? nullptr : pages[page + 1]);
      visit_page(args, item, visit, pages[page], space);
    }
  }
}

void attend(const AttentionArgs& args, const AttentionItem& item, float* scratch) {
  const Workspace space(scratch, args, item);
  clear_sums(item, space);
  if (item.sequence->sparse) {
    attend_sparse(args, item, space);
  } else {
    attend_dense(args, item, space);
  }
  store_outputs(args, item, space);
}

void attend_page(const AttentionArgs& args, const AttentionItem& item, std::int64_t page,
                 float* scratch) {
  const Workspace space(scratch, args, item);
  const auto& sequence = *item.sequence;
  const auto index = static_cast<std::size_t>(page);
  const std::int64_t start = page * args.page_tokens;
  const std::int64_t last = position_of(args, item, item.num_pairs - 1);
  const std::byte* data = sequence.pages[index];
  const PageVisit visit{start, std::min(args.page_tokens, last + 1 - start), 0,
                        sequence.partials[index], keys_in_page(args, item.kv_head + 1, data)};
  if (!sequence.sparse) {
    load_queries(args, item, space);
    visit_page(args, item, visit, data, space);
    return;
  }
  for (std::int64_t pair = 0; pair < item.num_pairs; ++pair) {
    const SparseRow row = given_row(args, item, pair);
    const std::int64_t kept = list_all_kept(row, start, start + visit.count, space.kept);
    std::copy_n(row.scores + start, visit.count, space.scores);
    const PagePart seen = soften(space.scores, visit.count, 1.0f);
    take_weights(space.scores, start, space.kept, kept, space.kept_weights);
    weigh_kept(args, item, start, data, space.kept, kept, space.kept_weights, space);
    store_partial(args, item, pair, seen, space, visit.partials);
  }
}

void score_page(const AttentionArgs& args, const AttentionItem& item, std::int64_t page,
                float* scratch) {
  const Workspace space(scratch, args, item);
  load_queries(args, item, space);
  const auto& sequence = *item.sequence;
  const std::byte* data = sequence.pages[static_cast<std::size_t>(page)];
  const std::int64_t start = page * args.page_tokens;
  const auto positions = static_cast<std::int64_t>(sequence.pages.size()) * args.page_tokens;
  const PageSide side{keys_in_page(args, item.kv_head, data),
                      keys_in_page(args, item.kv_head + 1, data), space.key_params};
  score_keys(args,
             {space.queries, space.width, item.num_pairs,
              sequence.scores + head_of(args, item, 0) * positions + start, positions},
             side, std::min(args.page_tokens, sequence.first_position + 1 - start), space);
}

void store_halves(const float* from, std::int64_t count, Half* to) {
  std::int64_t i = 0;
  for (; i + kRegister <= count; i += kRegister) {
    hn::StoreU(hn::DemoteTo(HalfTag(), load(from + i)), HalfTag(),
               reinterpret_cast<hwy::float16_t*>(to + i));
  }
  for (; i < count; ++i) {
    to[i] = to_half(from[i]);
  }
}

void store_run(const KvFormat& format, const float* from, std::int64_t count, const KvRun& to) {
  if (format.packed()) {
    pack_run(format.pack(), from, count, to.params, to.numbers);
  } else if (format.type == KvType::f16) {
    store_halves(from, count, reinterpret_cast<Half*>(to.numbers));
  } else {
    std::memcpy(to.numbers, from, static_cast<std::size_t>(count) * sizeof(float));
  }
}

}  // namespace

const AttentionKernels& attention_table() {
  static constexpr AttentionKernels kTable{attend, attend_page, score_page, select, store_run};
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

std::int64_t attention_scratch_floats(std::int64_t head_dim, std::int64_t page_tokens,
                                      std::int64_t sparse_tokens) {
  const std::int64_t width = padded_to_blocks(head_dim);
  const std::int64_t tokens = padded_to_lanes(page_tokens);
  return 2 * tokens * width + 2 * params_floats(tokens, width) +
         (2 * kMaxAttentionPairs + 1) * width + kMaxAttentionPairs * tokens +
         2 * padded_to_lanes(kMaxAttentionPairs) +
         (kMaxSparsePairs + 6) * padded_to_sparse(sparse_tokens);
}

}  // namespace stagecoach::device
#endif
