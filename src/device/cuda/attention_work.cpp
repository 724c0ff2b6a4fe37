#include "device/cuda/attention_work.hpp"

#include <algorithm>
#include <utility>

#include "device/cuda/operation_bytes.hpp"

namespace stagecoach::device::cuda {
namespace {

std::int64_t seen_pages(const AttentionArgs& args, const SequenceRows& sequence) {
  return (std::int64_t{sequence.first_position} + sequence.num_rows - 1) / args.page_tokens + 1;
}

RowWork row_work(const AttentionArgs& args, const WorkTables& tables, std::size_t index,
                 std::int32_t row) {
  const auto& source = *tables.sources[index];
  const std::int64_t position = std::int64_t{source.first_position} + row;
  RowWork work;
  work.sequence = static_cast<std::int32_t>(index);
  work.row = row;
  work.runs = static_cast<std::int32_t>(runs_of(position / args.page_tokens + 1, args.page_tokens));
  if (source.sparse) {
    work.kept = static_cast<std::int32_t>(kept_positions(args.sparsity, position));
    work.scores = source.scores;
    work.selection = source.selection;
    work.score_stride = static_cast<std::int64_t>(source.pages.size()) * args.page_tokens;
  }
  return work;
}

/// Cuts rows into waves as it is told of them.
class WaveMaker {
 public:
  WaveMaker(const AttentionArgs& args, std::byte* scratch) : args_(args), scratch_(scratch) {}

  void add(RowWork work, bool selects) {
    const std::int64_t scored = selects ? work.score_stride : 0;
    const auto pieces = row_pieces(args_.heads, args_.head_dim, work.runs, scored);
    if (used_ > 0 && used_ + pieces.total() > kWaveBytes) {
      begin_wave();
    }
    if (plan_.waves.empty()) {
      begin_wave();
    }
    if (pieces.parts > 0) {
      work.run_parts = take<float>(pieces.parts);
    }
    if (selects) {
      work.scores = take<float>(pieces.scores);
      work.selection = take<AttentionSelection>(pieces.selection);
    }
    auto& wave = plan_.waves.back();
    ++wave.count;
    wave.most_runs = std::max(wave.most_runs, work.runs);
    wave.merges = wave.merges || work.run_parts != nullptr;
    wave.selecting += selects ? 1 : 0;
    wave.first_selecting += wave.selecting == 0 ? 1 : 0;
    plan_.rows.push_back(work);
  }

  [[nodiscard]] RowPlan plan() && { return std::move(plan_); }

 private:
  void begin_wave() {
    used_ = 0;
    plan_.waves.emplace_back();
    plan_.waves.back().first = plan_.rows.size();
  }
  template <typename T>
  T* take(std::size_t size_bytes) {
    auto* const piece = reinterpret_cast<T*>(scratch_ + used_);
    used_ += size_bytes;
    return piece;
  }

  const AttentionArgs& args_;
  std::byte* scratch_;
  std::size_t used_ = 0;
  RowPlan plan_{};
};

}  // namespace

KvLayout kv_layout(const AttentionArgs& args) {
  const auto& format = args.kv_format;
  KvLayout layout;
  layout.type = format.type;
  layout.kv_heads = static_cast<int>(args.kv_heads);
  layout.head_dim = static_cast<int>(args.head_dim);
  layout.page_tokens = static_cast<int>(args.page_tokens);
  layout.group = static_cast<int>(format.group);
  if (format.packed()) {
    layout.groups = static_cast<int>(pack_groups(format.pack(), args.head_dim));
    layout.code_bytes = static_cast<int>(code_bytes(format.pack(), args.head_dim));
  }
  layout.run_pages = static_cast<int>(run_pages(args.page_tokens));
  layout.head_bytes = kv_head_bytes(format, args.page_tokens, args.head_dim);
  return layout;
}

WorkTables make_tables(const AttentionArgs& args) {
  WorkTables tables;
  for (const auto& sequence : args.sequences) {
    if (sequence.num_rows == 0) {
      continue;
    }
    tables.sequences.push_back({sequence.first_row, sequence.num_rows, sequence.first_position,
                                static_cast<std::int32_t>(tables.pages.size())});
    tables.sources.push_back(&sequence);
    const auto seen = seen_pages(args, sequence);
    tables.pages.insert(tables.pages.end(), sequence.pages.begin(), sequence.pages.begin() + seen);
    if (!sequence.partials.empty()) {
      tables.places.insert(tables.places.end(), sequence.partials.begin(),
                           sequence.partials.begin() + seen);
    }
    tables.places.resize(tables.pages.size());
  }
  return tables;
}

bool goes_to_tiles(const AttentionArgs& args, const WorkTables& tables, std::size_t index) {
  const auto& source = *tables.sources[index];
  const auto seen = seen_pages(args, source);
  return source.num_rows >= kFewestTileRows && args.head_dim <= kWidestTileHead && !source.sparse &&
         std::find(source.pages.begin(), source.pages.begin() + seen, nullptr) ==
             source.pages.begin() + seen;
}

std::vector<TileWork> make_tiles(const AttentionArgs& args, const WorkTables& tables) {
  std::vector<TileWork> tiles;
  const std::int64_t group = args.heads / args.kv_heads;
  for (std::size_t index = 0; index < tables.sources.size(); ++index) {
    if (!goes_to_tiles(args, tables, index)) {
      continue;
    }
    const std::int64_t pairs = tables.sources[index]->num_rows * group;
    for (std::int64_t pair = 0; pair < pairs; pair += tile_pairs(args.head_dim)) {
      tiles.push_back({static_cast<std::int32_t>(index), static_cast<std::int32_t>(pair)});
    }
  }
  return tiles;
}

RowPlan make_rows(const AttentionArgs& args, const WorkTables& tables, std::byte* scratch) {
  WaveMaker maker(args, scratch);
  for (const bool selecting : {false, true}) {
    for (std::size_t index = 0; index < tables.sources.size(); ++index) {
      const auto& source = *tables.sources[index];
      const bool selects = source.sparse && source.selection == nullptr;
      if (selects != selecting || goes_to_tiles(args, tables, index)) {
        continue;
      }
      for (std::int32_t row = 0; row < source.num_rows; ++row) {
        auto work = row_work(args, tables, index, row);
        if (selects) {
          work.score_stride = std::int64_t{source.first_position} + row + 1;
        }
        maker.add(work, selects);
      }
    }
  }
  return std::move(maker).plan();
}

std::vector<RowWork> make_store_rows(const WorkTables& tables) {
  std::vector<RowWork> rows;
  for (std::size_t index = 0; index < tables.sequences.size(); ++index) {
    for (std::int32_t row = 0; row < tables.sequences[index].num_rows; ++row) {
      rows.emplace_back();
      rows.back().sequence = static_cast<std::int32_t>(index);
      rows.back().row = row;
    }
  }
  return rows;
}

std::vector<RowWork> make_partial_rows(const AttentionArgs& args, const WorkTables& tables) {
  std::vector<RowWork> rows;
  for (std::size_t index = 0; index < tables.sources.size(); ++index) {
    const auto& source = *tables.sources[index];
    if (source.partials.empty()) {
      continue;
    }
    for (std::int32_t row = 0; row < source.num_rows; ++row) {
      rows.push_back(row_work(args, tables, index, row));
      rows.back().runs = static_cast<std::int32_t>(
          (std::int64_t{source.first_position} + row) / args.page_tokens + 1);
    }
  }
  return rows;
}

std::vector<RowWork> make_score_rows(const AttentionArgs& args, const WorkTables& tables) {
  std::vector<RowWork> rows;
  for (std::size_t index = 0; index < tables.sources.size(); ++index) {
    if (tables.sources[index]->scores != nullptr) {
      rows.push_back(row_work(args, tables, index, 0));
    }
  }
  return rows;
}

std::vector<ValuesWork> make_values(const AttentionArgs& args, const WorkTables& tables,
                                    std::vector<RowWork>& rows) {
  std::vector<ValuesWork> values;
  for (std::size_t index = 0; index < tables.sources.size(); ++index) {
    const auto& source = *tables.sources[index];
    if (source.values != nullptr) {
      values.push_back({static_cast<std::int32_t>(rows.size()),
                        static_cast<std::int32_t>(value_records(
                            args.sparsity, source.first_position, args.heads / args.kv_heads)),
                        source.values});
      rows.push_back(row_work(args, tables, index, 0));
    }
  }
  return values;
}

}  // namespace stagecoach::device::cuda
