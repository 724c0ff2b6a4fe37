#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/device.hpp"

namespace stagecoach::device::cuda {

/// What kernels must know of pages: see kv_head_bytes.
struct KvLayout {
  KvType type = KvType::f16;
  int kv_heads = 0;
  int head_dim = 0;
  int page_tokens = 0;
  int group = 0;       ///< numbers of one packed group
  int groups = 0;      ///< of a token, where packed; else 0
  int code_bytes = 0;  ///< of a token, where packed; else 0
  int run_pages = 1;   ///< see below
  std::int64_t head_bytes = 0;
};
KvLayout kv_layout(const AttentionArgs& args);

/// SequenceRows for kernels. Only sequences with rows are there, and of their pages those that some
/// row sees.
struct SequenceWork {
  std::int32_t first_row = 0;
  std::int32_t num_rows = 0;
  std::int32_t first_position = 0;
  std::int32_t first_page = 0;  ///< in the tables of pages and places
};

/// One row of a sequence.
struct RowWork {
  std::int32_t sequence = 0;  ///< in the table of sequences
  std::int32_t row = 0;       ///< of the sequence
  std::int32_t runs = 0;      ///< runs of pages that it sees
  std::int32_t kept = 0;      ///< where sparse: earlier positions that it keeps
  /// [heads, runs, head_dim + 2]: partial results of its runs; null where there is one run alone.
  float* run_parts = nullptr;
  float* scores = nullptr;                  ///< [heads, score_stride], scaled; null: not sparse
  AttentionSelection* selection = nullptr;  ///< [heads]
  std::int64_t score_stride = 0;
};

/// The values of a sparse row on their way.
struct ValuesWork {
  std::int32_t row = 0;      ///< in the table of rows
  std::int32_t records = 0;  ///< of one KV head
  std::byte* values = nullptr;
};

/// Some pairs (row, query head of one KV head) of a sequence for tensor cores.
struct TileWork {
  std::int32_t sequence = 0;
  std::int32_t first_pair = 0;
};

/// Rows that share scratch: those of one launch.
struct RowWave {
  std::size_t first = 0;
  std::size_t count = 0;
  std::int32_t most_runs = 0;
  bool merges = false;  ///< some row has several runs
  /// Those of its rows, side by side, that must score and select first; counted from `first`.
  std::size_t first_selecting = 0;
  std::size_t selecting = 0;
};

/// Everything but the work lists.
struct WorkTables {
  std::vector<SequenceWork> sequences{};
  std::vector<const SequenceRows*> sources{};  ///< of `sequences`
  std::vector<std::byte*> pages{};
  std::vector<float*> places{};  ///< of partial results; as many as pages
};
WorkTables make_tables(const AttentionArgs& args);

/// Tokens that one block looks at. Runs depend on positions alone, so that a row's bits do.
inline constexpr std::int64_t kRunTokens = 256;
constexpr std::int64_t run_pages(std::int64_t page_tokens) {
  return page_tokens < kRunTokens ? kRunTokens / page_tokens : 1;
}

/// Fewest rows of a sequence that are worth tensor cores, and the widest head that they are for.
inline constexpr std::int32_t kFewestTileRows = 8;
inline constexpr std::int64_t kWidestTileHead = 256;
/// The widest head there may be at all.
inline constexpr std::int64_t kWidestHead = 1024;
/// Pairs of one tile: as many as fit 48 KiB of shared memory.
constexpr int tile_pairs(std::int64_t head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 32 : 16;
}

/// The sequence that `index` is in the tables: whether it goes to tensor cores.
bool goes_to_tiles(const AttentionArgs& args, const WorkTables& tables, std::size_t index);
std::vector<TileWork> make_tiles(const AttentionArgs& args, const WorkTables& tables);

struct RowPlan {
  std::vector<RowWork> rows{};
  std::vector<RowWave> waves{};
};
/// Rows that do not go to tiles, in waves that fit the scratch of attention_bytes.
RowPlan make_rows(const AttentionArgs& args, const WorkTables& tables, std::byte* scratch);
/// All rows, to be stored: nothing but which they are.
std::vector<RowWork> make_store_rows(const WorkTables& tables);
/// Rows of all sequences that have places for partial results; one run is one page.
std::vector<RowWork> make_partial_rows(const AttentionArgs& args, const WorkTables& tables);
/// Rows of sequences that have scores.
std::vector<RowWork> make_score_rows(const AttentionArgs& args, const WorkTables& tables);
/// Values of sequences that have some; `rows` gets one row for each.
std::vector<ValuesWork> make_values(const AttentionArgs& args, const WorkTables& tables,
                                    std::vector<RowWork>& rows);

/// Device memory that waves of rows aim at; a single row may need more.
inline constexpr std::size_t kWaveBytes = std::size_t{32} << 20;

}  // namespace stagecoach::device::cuda
