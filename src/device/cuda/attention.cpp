#include "device/cuda/attention.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "device/cuda/attention_kernels.hpp"
#include "device/cuda/attention_sparse.hpp"
#include "device/cuda/attention_tiles.hpp"
#include "device/cuda/attention_work.hpp"
#include "device/cuda/kv_store.hpp"

namespace stagecoach::device::cuda {
namespace {

template <typename T>
const T* upload(Operation& operation, const std::vector<T>& items) {
  return items.empty() ? nullptr : operation.upload(std::span<const T>(items));
}

/// The tables of an operation, on the host and on the device.
struct Uploaded {
  WorkTables tables{};
  AttentionView view{};
  std::byte* const* pages = nullptr;  ///< device memory
};

Uploaded upload_tables(Operation& operation, const AttentionArgs& args, bool with_places) {
  STAGECOACH_CHECK(args.head_dim <= kWidestHead, "heads of {}: at most {} have kernels",
                   args.head_dim, kWidestHead);
  Uploaded uploaded;
  uploaded.tables = make_tables(args);
  uploaded.pages = upload(operation, uploaded.tables.pages);
  auto& view = uploaded.view;
  view.query = args.query;
  view.row_stride = args.row_stride;
  view.out = args.out;
  view.heads = static_cast<int>(args.heads);
  view.group = static_cast<int>(args.heads / args.kv_heads);
  view.scale = args.scale;
  view.layout = kv_layout(args);
  view.sequences = upload(operation, uploaded.tables.sequences);
  view.pages = uploaded.pages;
  if (with_places) {
    view.places = upload(operation, uploaded.tables.places);
  }
  return uploaded;
}

bool has_places(const AttentionArgs& args) {
  return std::any_of(args.sequences.begin(), args.sequences.end(),
                     [](const SequenceRows& sequence) { return !sequence.partials.empty(); });
}

std::int32_t most_runs(const std::vector<RowWork>& rows) {
  std::int32_t most = 0;
  for (const auto& row : rows) {
    most = std::max(most, row.runs);
  }
  return most;
}

RowSpan upload_rows(Operation& operation, const std::vector<RowWork>& rows) {
  return {upload(operation, rows), rows.size(), most_runs(rows)};
}

void attend_wave(Operation& operation, const AttentionView& view, const RowSpan& span,
                 const RowWave& wave, const RowSpan& selecting) {
  if (selecting.count > 0) {
    launch_scores(operation.stream(), view, selecting);
    launch_selection(operation.stream(), view, selecting);
  }
  launch_row_attention(operation.stream(), view, span);
  if (wave.merges) {
    launch_run_merge(operation.stream(), view, span);
  }
}

}  // namespace

void store_kv(Operation& operation, const AttentionArgs& args) {
  const auto uploaded = upload_tables(operation, args, false);
  const auto rows = make_store_rows(uploaded.tables);
  KvStore store;
  store.key = args.key;
  store.value = args.value;
  store.row_stride = args.row_stride;
  store.layout = uploaded.view.layout;
  store.sequences = uploaded.view.sequences;
  store.pages = uploaded.pages;
  store.rows = upload(operation, rows);
  store.num_rows = rows.size();
  launch_kv_store(operation.stream(), store);
}

void attention(Operation& operation, const AttentionArgs& args) {
  const auto uploaded = upload_tables(operation, args, has_places(args));
  const auto tiles = make_tiles(args, uploaded.tables);
  launch_tiles(operation.stream(), uploaded.view, upload(operation, tiles), tiles.size());
  const auto plan = make_rows(args, uploaded.tables, operation.scratch());
  const auto* rows = upload(operation, plan.rows);
  for (const auto& wave : plan.waves) {
    const RowSpan span{rows + wave.first, wave.count, wave.most_runs};
    attend_wave(operation, uploaded.view, span, wave,
                {span.rows + wave.first_selecting, wave.selecting, wave.most_runs});
  }
}

void attention_partials(Operation& operation, const AttentionArgs& args) {
  const auto uploaded = upload_tables(operation, args, true);
  const auto rows = make_partial_rows(args, uploaded.tables);
  launch_page_parts(operation.stream(), uploaded.view, upload_rows(operation, rows));
}

void attention_scores(Operation& operation, const AttentionArgs& args) {
  const auto uploaded = upload_tables(operation, args, false);
  const auto rows = make_score_rows(args, uploaded.tables);
  launch_scores(operation.stream(), uploaded.view, upload_rows(operation, rows));
}

void select_top(Operation& operation, const AttentionArgs& args) {
  const auto uploaded = upload_tables(operation, args, false);
  const auto rows = make_score_rows(args, uploaded.tables);
  launch_selection(operation.stream(), uploaded.view, upload_rows(operation, rows));
}

namespace {

void move_values(Operation& operation, const AttentionArgs& args,
                 void (*launch)(cudaStream_t, const AttentionView&, const ValuesSpan&)) {
  const auto uploaded = upload_tables(operation, args, false);
  std::vector<RowWork> rows;
  const auto values = make_values(args, uploaded.tables, rows);
  ValuesSpan span;
  span.rows = upload(operation, rows);
  span.values = upload(operation, values);
  span.pages = uploaded.pages;
  span.count = values.size();
  span.record_bytes = value_record_bytes(args.kv_format, args.head_dim);
  launch(operation.stream(), uploaded.view, span);
}

}  // namespace

void gather_values(Operation& operation, const AttentionArgs& args) {
  move_values(operation, args, launch_gather_values);
}

void scatter_values(Operation& operation, const AttentionArgs& args) {
  move_values(operation, args, launch_scatter_values);
}

}  // namespace stagecoach::device::cuda
