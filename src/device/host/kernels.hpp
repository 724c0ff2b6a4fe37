#pragma once

#include <cstdint>

#include "device/device.hpp"
#include "device/host/attention_layout.hpp"
#include "device/host/isa.hpp"

namespace stagecoach::device {

/// Elements of a row are padded to a multiple of this in scratch memory.
inline constexpr std::int64_t kLaneCount = 16;

constexpr std::int64_t padded_to_lanes(std::int64_t elements) {
  return (elements + kLaneCount - 1) / kLaneCount * kLaneCount;
}

/// The same in whole blocks of codes.
constexpr std::int64_t padded_to_blocks(std::int64_t elements) {
  return (elements + kCodeBlock - 1) / kCodeBlock * kCodeBlock;
}

/// Elements of what a sparse row has for each position: whole registers may be written at any of
/// them.
constexpr std::int64_t padded_to_sparse(std::int64_t positions) {
  return positions == 0 ? 0 : padded_to_lanes(positions) + kLaneCount;
}

/// Elements that the parameters of packed tokens take at most, widened with zeros behind them.
constexpr std::int64_t params_floats(std::int64_t tokens, std::int64_t width) {
  return tokens * width / kCodeBlock * 2 + kLaneCount;
}

/// Some numbers of a packed row. The first begins a group whose place is a multiple of four.
struct PackedRun {
  Packing packing = Packing::int4;
  std::int64_t group = 0;
  const std::byte* params = nullptr;
  const std::byte* codes = nullptr;
  std::int64_t count = 0;
  const std::byte* soon_params = nullptr;  ///< of a run as long that is wanted soon: fetched
  const std::byte* soon_codes = nullptr;   ///< meanwhile
};

/// The numbers `first` to `first + count` - 1 of row `row` of packed weights, where `first` is a
/// multiple of four groups. The same numbers of row `soon` are wanted soon.
inline PackedRun packed_run(const Weights& weights, std::int64_t columns, std::int64_t row,
                            std::int64_t soon, std::int64_t first, std::int64_t count) {
  const auto& format = weights.format;
  const std::int64_t before_params = first / format.group * 4;
  const std::int64_t before_codes = row_params_bytes(format, columns) + code_bytes(format, first);
  const std::byte* start = weights.from_row(row, columns).data;
  const std::byte* later = weights.from_row(soon, columns).data;
  return {format.packing, format.group,          start + before_params, start + before_codes,
          count,          later + before_params, later + before_codes};
}

/// A block of a product: `rows` rows of x times `columns` rows of the weight over `depth` elements
/// of both.
struct ProductBlock {
  const float* x = nullptr;  ///< rows padded with zeros to a multiple of 16 elements
  std::int64_t x_stride = 0;
  std::int64_t depth = 0;
  std::int64_t rows = 0;  ///< at most LinearKernels::tile_rows
  std::int64_t columns = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  bool accumulate = false;  ///< add to `out`, else overwrite it
  bool last = false;        ///< then add the bias and apply relu
  const Half* bias = nullptr;
  bool relu = false;
};

template <typename W>
struct LinearBlock : ProductBlock {
  const W* w = nullptr;
  std::int64_t w_stride = 0;
};

/// `depth` is a multiple of four groups, `columns` of four.
struct PackedBlock : ProductBlock {
  PackedRun w{};  ///< of the first column
  std::int64_t w_stride_bytes = 0;
};

struct LinearKernels {
  std::int64_t tile_rows = 0;
  std::int64_t packed_rows = 0;
  void (*block_f32)(const LinearBlock<float>& block) = nullptr;
  void (*block_f16)(const LinearBlock<Half>& block) = nullptr;
  /// For at most `packed_rows` rows; a weight that is not there may be fetched, but not read.
  void (*block_packed)(const PackedBlock& block) = nullptr;
  /// Each widens its elements and writes zeros up to a multiple of 16.
  void (*widen)(const Half* from, std::int64_t count, float* to) = nullptr;
  void (*widen_packed)(const PackedRun& run, float* to) = nullptr;
  void (*copy_padded)(const float* from, std::int64_t count, float* to) = nullptr;
};
const LinearKernels& linear_kernels(Isa isa);

/// Some query rows of one sequence that share a KV head. A pair is one (row, head): pair p is row
/// p / group and head kv_head * group + p % group, where group = heads / kv_heads.
struct AttentionItem {
  const SequenceRows* sequence = nullptr;
  std::int64_t kv_head = 0;
  std::int64_t first_pair = 0;
  std::int64_t num_pairs = 0;  ///< at most kMaxAttentionPairs
};
inline constexpr std::int64_t kMaxAttentionPairs = 24;

/// Pairs of sparse rows in one item: each needs a place for the scores of all its positions.
inline constexpr std::int64_t kMaxSparsePairs = 6;

/// `scratch` has attention_scratch_floats elements, 64-byte aligned.
struct AttentionKernels {
  void (*attend)(const AttentionArgs& args, const AttentionItem& item, float* scratch) = nullptr;
  /// The partial results of one page, which all pairs of the item see.
  void (*attend_page)(const AttentionArgs& args, const AttentionItem& item, std::int64_t page,
                      float* scratch) = nullptr;
  /// The scores of one page, into the sequence's.
  void (*score_page)(const AttentionArgs& args, const AttentionItem& item, std::int64_t page,
                     float* scratch) = nullptr;
  /// The `kept` highest of `count` scores. `scratch` has `count` elements, rounded up to 16.
  AttentionSelection (*select_top)(const float* scores, std::int64_t count, std::int64_t kept,
                                   float* scratch) = nullptr;
  void (*store_run)(const KvFormat& format, const float* from, std::int64_t count,
                    const KvRun& to) = nullptr;
};
const AttentionKernels& attention_kernels(Isa isa);
/// `sparse_tokens`: of the longest sequence with sparse attention; 0: none.
std::int64_t attention_scratch_floats(std::int64_t head_dim, std::int64_t page_tokens,
                                      std::int64_t sparse_tokens);

struct RowKernels {
  void (*layer_norm)(const LayerNormArgs& args, std::int64_t row) = nullptr;
  /// out = a + b, widened.
  void (*add_halves)(const Half* a, const Half* b, std::int64_t count, float* out) = nullptr;
  /// out = what the run means + b, widened.
  void (*add_packed)(const PackedRun& run, const Half* b, float* out) = nullptr;
  /// out = what the run means.
  void (*widen_packed)(const PackedRun& run, Half* out) = nullptr;
};
const RowKernels& row_kernels(Isa isa);

/// What one pass over a row of logits finds.
struct LogitSummary {
  float max = 0;           ///< of the numbers
  std::int64_t index = 0;  ///< the lowest with that value
  bool has_nan = false;
};

struct SampleKernels {
  LogitSummary (*summarize)(const float* logits, std::int64_t count) = nullptr;
  /// The sum of exp((logits[i] - max) / temperature) in f64, over 8 lanes.
  double (*sum_exp)(const float* logits, std::int64_t count, double max,
                    double temperature) = nullptr;
};
const SampleKernels& sample_kernels(Isa isa);

}  // namespace stagecoach::device
