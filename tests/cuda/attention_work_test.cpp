#include "device/cuda/attention_work.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "device/cuda/attention.hpp"

namespace stagecoach::test {
namespace {

using device::AttentionArgs;
using device::SequenceRows;
using namespace device::cuda;

/// Pages that nobody reads.
std::vector<std::byte*> some_pages(std::size_t count, std::uintptr_t from) {
  std::vector<std::byte*> pages;
  for (std::size_t i = 0; i < count; ++i) {
    pages.push_back(reinterpret_cast<std::byte*>(from + 256 * i));
  }
  return pages;
}

AttentionArgs large_args() {
  AttentionArgs args;
  args.heads = 64;
  args.kv_heads = 8;
  args.head_dim = 128;
  args.page_tokens = 16;
  args.sparsity = 0.25;
  return args;
}

device::ScratchShape shape_of(const AttentionArgs& args, std::int64_t rows, std::int64_t sequences,
                              std::int64_t pages, std::int64_t sparse_tokens) {
  device::ScratchShape shape;
  shape.head_dim = args.head_dim;
  shape.page_tokens = args.page_tokens;
  shape.heads = args.heads;
  shape.kv_heads = args.kv_heads;
  shape.max_rows = rows;
  shape.max_sequences = sequences;
  shape.longest_pages = pages;
  shape.sparse_tokens = sparse_tokens;
  return shape;
}

/// A piece of scratch.
struct Piece {
  const std::byte* begin;
  const std::byte* end;
};

std::vector<Piece> pieces_of(const AttentionArgs& args, const RowPlan& plan, const RowWave& wave) {
  std::vector<Piece> pieces;
  const auto add = [&](const void* begin, std::int64_t count, std::size_t size_bytes) {
    if (begin != nullptr) {
      const auto* from = static_cast<const std::byte*>(begin);
      pieces.push_back({from, from + static_cast<std::size_t>(count) * size_bytes});
    }
  };
  for (std::size_t i = wave.first; i < wave.first + wave.count; ++i) {
    const auto& row = plan.rows[i];
    add(row.run_parts, args.heads * row.runs * (args.head_dim + 2), sizeof(float));
    add(row.scores, args.heads * row.score_stride, sizeof(float));
    add(row.selection, args.heads, sizeof(device::AttentionSelection));
  }
  return pieces;
}

// Rows of one wave have scratch of their own, all of it within what was promised.
TEST(CudaAttentionWork, WavesFitTheScratch) {
  auto args = large_args();
  constexpr std::int64_t kPages = 500;
  for (int s = 0; s < 40; ++s) {
    args.sequences.push_back({s, 1, 16 * s * 12, some_pages(kPages, 0x10000)});
    args.sequences.back().sparse = s % 2 == 1;
  }
  const auto bytes = attention_bytes(shape_of(args, 40, 40, kPages, 16 * kPages));
  std::vector<std::byte> scratch(bytes.scratch);
  const auto tables = make_tables(args);
  const auto plan = make_rows(args, tables, scratch.data());
  ASSERT_EQ(plan.rows.size(), 40U);
  EXPECT_GT(plan.waves.size(), 1U);
  std::size_t rows = 0;
  for (const auto& wave : plan.waves) {
    ASSERT_EQ(wave.first, rows);
    rows += wave.count;
    auto pieces = pieces_of(args, plan, wave);
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_GE(pieces[i].begin, i == 0 ? scratch.data() : pieces[i - 1].end);
      EXPECT_LE(pieces[i].end, scratch.data() + scratch.size());
    }
    for (std::size_t i = 0; i < wave.count; ++i) {
      const bool selecting = i >= wave.first_selecting && i < wave.first_selecting + wave.selecting;
      EXPECT_EQ(selecting, plan.rows[wave.first + i].scores != nullptr);
      EXPECT_LE(plan.rows[wave.first + i].runs, wave.most_runs);
    }
  }
  EXPECT_EQ(rows, 40U);
}

// One row may need more than a wave aims at.
TEST(CudaAttentionWork, ScratchHoldsTheLongestRow) {
  auto args = large_args();
  constexpr std::int64_t kPages = 1 << 16;
  args.sequences.push_back({0, 1, 16 * kPages - 1, some_pages(kPages, 0x10000)});
  const auto bytes = attention_bytes(shape_of(args, 1, 1, kPages, 0));
  EXPECT_GT(bytes.scratch, kWaveBytes);
  const auto plan = make_rows(args, make_tables(args), nullptr);
  ASSERT_EQ(plan.waves.size(), 1U);
  EXPECT_EQ(plan.rows[0].runs, 16 * kPages / kRunTokens);
  EXPECT_LE(static_cast<std::size_t>(args.heads * plan.rows[0].runs * (args.head_dim + 2)) * 4,
            bytes.scratch);
}

TEST(CudaAttentionWork, TilesCoverAllPairsOnce) {
  auto args = large_args();
  args.sequences.push_back({0, 21, 3, some_pages(2, 0x10000)});
  args.sequences.push_back({21, 0, 3, {}});
  args.sequences.push_back({21, 8, 0, some_pages(1, 0x20000)});
  const auto tiles = make_tiles(args, make_tables(args));
  std::int64_t next = 0;
  std::int32_t sequence = 0;
  for (const auto& tile : tiles) {
    if (tile.sequence != sequence) {
      EXPECT_GE(next, 21 * 8);
      next = 0;
      sequence = tile.sequence;
    }
    EXPECT_EQ(tile.first_pair, next);
    next += tile_pairs(args.head_dim);
  }
  EXPECT_EQ(sequence, 1);
  EXPECT_GE(next, 8 * 8);
  EXPECT_LT(next - tile_pairs(args.head_dim), 8 * 8);
}

// Runs depend on a row's position alone.
TEST(CudaAttentionWork, RunsAreCutByPosition) {
  EXPECT_EQ(run_pages(16) * 16, kRunTokens);
  EXPECT_EQ(run_pages(5) * 5, kRunTokens / 5 * 5);
  EXPECT_EQ(run_pages(1000), 1);
  auto args = large_args();
  args.sequences.push_back({0, 3, 254, some_pages(100, 0x10000)});
  const auto plan = make_rows(args, make_tables(args), nullptr);
  ASSERT_EQ(plan.rows.size(), 3U);
  EXPECT_EQ(plan.rows[0].runs, 1);
  EXPECT_EQ(plan.rows[1].runs, 1);
  EXPECT_EQ(plan.rows[2].runs, 2);
  EXPECT_EQ(plan.rows[1].run_parts, nullptr);
}

TEST(CudaAttentionWork, TablesHaveThePagesThatAreSeen) {
  auto args = large_args();
  args.sequences.push_back({0, 0, 16, some_pages(2, 0x10000)});
  args.sequences.push_back({0, 1, 31, some_pages(5, 0x20000)});
  args.sequences.push_back({1, 1, 32, some_pages(3, 0x30000)});
  args.sequences[2].partials = {nullptr, reinterpret_cast<float*>(0x40), nullptr};
  const auto tables = make_tables(args);
  ASSERT_EQ(tables.sequences.size(), 2U);
  EXPECT_EQ(tables.sequences[1].first_page, 2);
  ASSERT_EQ(tables.pages.size(), 5U);
  EXPECT_EQ(tables.pages[2], args.sequences[2].pages[0]);
  ASSERT_EQ(tables.places.size(), 5U);
  EXPECT_EQ(tables.places[1], nullptr);
  EXPECT_EQ(tables.places[3], args.sequences[2].partials[1]);
}

}  // namespace
}  // namespace stagecoach::test
