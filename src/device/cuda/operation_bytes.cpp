#include "device/cuda/operation_bytes.hpp"

#include <algorithm>

#include "base/aligned_memory.hpp"
#include "device/cuda/attention_work.hpp"
#include "device/cuda/sample_records.hpp"

namespace stagecoach::device::cuda {
namespace {

constexpr std::size_t kRowPieceAlignment = 16;

std::size_t aligned(std::size_t size_bytes) { return round_up(size_bytes, kOperationAlignment); }

std::size_t ring_bytes(std::size_t operation_bytes) {
  return OperationLayout::kOperationsAhead * aligned(operation_bytes);
}

}  // namespace

RowPieces row_pieces(std::int64_t heads, std::int64_t head_dim, std::int64_t runs,
                     std::int64_t scored) {
  RowPieces pieces;
  if (runs > 1) {
    pieces.parts = round_up(sizeof(float) * static_cast<std::size_t>(heads * runs * (head_dim + 2)),
                            kRowPieceAlignment);
  }
  if (scored > 0) {
    pieces.scores =
        round_up(sizeof(float) * static_cast<std::size_t>(heads * scored), kRowPieceAlignment);
    pieces.selection =
        round_up(sizeof(AttentionSelection) * static_cast<std::size_t>(heads), kRowPieceAlignment);
  }
  return pieces;
}

std::int64_t runs_of(std::int64_t pages, std::int64_t page_tokens) {
  return (pages + run_pages(page_tokens) - 1) / run_pages(page_tokens);
}

OperationBytes row_operation_bytes(const ScratchShape& shape) {
  const auto list = static_cast<std::size_t>(shape.max_rows) * sizeof(std::int32_t);
  return {.scratch = 0, .upload = 2 * aligned(list), .download = 0};  // of embed
}

OperationBytes product_bytes(const ScratchShape& shape) {
  return {.scratch = kProductWorkspaceBytes + aligned(static_cast<std::size_t>(
                                                  2 * kProductPieceRows * shape.max_in_features)),
          .upload = 0,
          .download = 0};
}

OperationBytes attention_bytes(const ScratchShape& shape) {
  const auto sequences = static_cast<std::size_t>(shape.max_sequences);
  const auto rows = static_cast<std::size_t>(shape.max_rows);
  const auto pages = sequences * static_cast<std::size_t>(shape.longest_pages);
  const auto group = shape.kv_heads > 0 ? shape.heads / shape.kv_heads : 0;
  const auto tiles = sequences + rows * static_cast<std::size_t>(group) /
                                     static_cast<std::size_t>(tile_pairs(shape.head_dim));
  const auto upload = [](std::size_t count, std::size_t size_bytes) {
    return aligned(count * size_bytes);
  };
  OperationBytes bytes;
  bytes.upload = upload(sequences, sizeof(SequenceWork)) + upload(pages, sizeof(std::byte*)) +
                 upload(pages, sizeof(float*)) + upload(rows, sizeof(RowWork)) +
                 std::max(upload(tiles, sizeof(TileWork)), upload(rows, sizeof(ValuesWork)));
  const auto runs =
      shape.page_tokens > 0 ? runs_of(shape.longest_pages, shape.page_tokens) : std::int64_t{0};
  const auto row = row_pieces(shape.heads, shape.head_dim, runs, shape.sparse_tokens).total();
  // A wave ends before the row that would make it larger than kWaveBytes, unless that is its first.
  bytes.scratch = std::min(rows * row, std::max(kWaveBytes, row));
  return bytes;
}

OperationBytes sample_bytes(const ScratchShape& shape) {
  const auto rows = static_cast<std::size_t>(shape.max_rows);
  const auto listed = static_cast<std::size_t>(std::min(shape.vocab, kMostListed));
  const auto results =
      aligned(rows * sizeof(SampledRow)) + aligned(rows * listed * sizeof(ListedToken));
  return {.scratch = results, .upload = aligned(rows * sizeof(RowToSample)), .download = results};
}

OperationLayout OperationLayout::of(const ScratchShape& shape) {
  OperationBytes most;
  for (const auto& family : {row_operation_bytes(shape), product_bytes(shape),
                             attention_bytes(shape), sample_bytes(shape)}) {
    most.scratch = std::max(most.scratch, family.scratch);
    most.upload = std::max(most.upload, family.upload);
    most.download = std::max(most.download, family.download);
  }
  return {.scratch = aligned(most.scratch),
          .upload = ring_bytes(most.upload),
          .download = ring_bytes(most.download)};
}

std::size_t scratch_bytes(const ScratchShape& shape) {
  return OperationLayout::of(shape).device_bytes();
}

std::size_t host_scratch_bytes(const ScratchShape& shape) {
  return OperationLayout::of(shape).host_bytes() + 2 * kCopyPieces * kCopyPieceBytes;
}

}  // namespace stagecoach::device::cuda
