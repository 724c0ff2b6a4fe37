#include "device/host/linear.hpp"

#include <algorithm>

namespace stagecoach::device {
namespace {

// A part of the definition of a result's bits. A tile of x (6 rows) fits into L1 beside a few rows
// of the panel, and folding the lanes once a block costs little.
constexpr std::int64_t kDepthBlock = 1024;
// Rows of scratch are not a power of two apart, so that they fall into different cache sets.
constexpr std::int64_t kScratchStride = kDepthBlock + kLaneCount;
// Weight rows that are widened at once: with kDepthBlock they take 520 KiB, which stay in L2.
constexpr std::int64_t kPanelRows = 128;
constexpr std::int64_t kLeastPanelRows = 16;
constexpr std::int64_t kColumnStep = 4;
constexpr std::int64_t kMaxTileRows = 6;
// Up to so many tiles of rows it is faster to widen in registers again for each tile.
constexpr std::int64_t kDirectTiles = 4;

template <typename Block>
Block make_block(const LinearArgs& args, std::int64_t row, std::int64_t rows, std::int64_t column,
                 std::int64_t columns, std::int64_t depth_from, std::int64_t depth) {
  Block block;
  block.depth = depth;
  block.rows = rows;
  block.columns = columns;
  block.out = args.out + row * args.out_stride + column;
  block.out_stride = args.out_stride;
  block.accumulate = depth_from > 0 || args.epilogue == Epilogue::add_to_out;
  block.last = depth_from + depth == args.in_features;
  block.bias = args.bias == nullptr ? nullptr : args.bias + column;
  block.relu = args.epilogue == Epilogue::relu;
  return block;
}

struct Matrix {
  const float* data;
  std::int64_t stride;
};

// `depth` inputs from k on of a packed row; fetches what the next step over the rows will want.
PackedRun run_of(const LinearArgs& args, std::int64_t column, std::int64_t k, std::int64_t depth) {
  const auto soon = std::min(column + kColumnStep, args.out_features - 1);
  return packed_run(args.weight, args.in_features, column, soon, k, depth);
}

// Rows `from` to `from + count` - 1 of the weight, inputs from k on, with zeros up to whole lanes.
void widen_rows(const LinearArgs& args, const LinearKernels& kernels, std::int64_t from,
                std::int64_t count, std::int64_t k, std::int64_t depth, float* panel) {
  for (std::int64_t i = 0; i < count; ++i) {
    float* to = panel + i * kScratchStride;
    if (args.weight.format.packed()) {
      kernels.widen_packed(run_of(args, from + i, k, depth), to);
    } else {
      kernels.widen(args.weight.halves() + (from + i) * args.in_features + k, depth, to);
    }
  }
}

// Few rows: weights are widened in registers, straight from where they lie, at the speed of memory.
void run_direct(const LinearArgs& args, const LinearKernels& kernels, const Matrix& x,
                std::int64_t column_from, std::int64_t column_to) {
  for (std::int64_t column = column_from; column < column_to; column += kColumnStep) {
    const std::int64_t columns = std::min(kColumnStep, column_to - column);
    for (std::int64_t k = 0; k < args.in_features; k += kDepthBlock) {
      const std::int64_t depth = std::min(kDepthBlock, args.in_features - k);
      for (std::int64_t row = 0; row < args.rows; row += kernels.tile_rows) {
        const std::int64_t rows = std::min(kernels.tile_rows, args.rows - row);
        auto block = make_block<LinearBlock<Half>>(args, row, rows, column, columns, k, depth);
        block.x = x.data + row * x.stride + k;
        block.x_stride = x.stride;
        block.w = args.weight.halves() + column * args.in_features + k;
        block.w_stride = args.in_features;
        kernels.block_f16(block);
      }
    }
  }
}

// A block of packed weights, widened in registers.
void multiply_packed(const LinearArgs& args, const LinearKernels& kernels, const Matrix& x,
                     std::int64_t column, std::int64_t columns, std::int64_t k,
                     std::int64_t depth) {
  auto block = make_block<PackedBlock>(args, 0, args.rows, column, columns, k, depth);
  block.x = x.data + k;
  block.x_stride = x.stride;
  block.w = run_of(args, column, k, depth);
  block.w_stride_bytes = args.weight.row_bytes(args.in_features);
  kernels.block_packed(block);
}

// A block of packed weights, widened into L1 once for all rows of x.
void widen_and_multiply(const LinearArgs& args, const LinearKernels& kernels, const Matrix& x,
                        std::int64_t column, std::int64_t columns, std::int64_t k,
                        std::int64_t depth, float* panel) {
  widen_rows(args, kernels, column, columns, k, depth, panel);
  for (std::int64_t row = 0; row < args.rows; row += kernels.tile_rows) {
    const std::int64_t rows = std::min(kernels.tile_rows, args.rows - row);
    auto block = make_block<LinearBlock<float>>(args, row, rows, column, columns, k, depth);
    block.x = x.data + row * x.stride + k;
    block.x_stride = x.stride;
    block.w = panel;
    block.w_stride = kScratchStride;
    block.depth = padded_to_lanes(depth);
    kernels.block_f32(block);
  }
}

// Few rows, packed weights: at the speed of memory, or of widening.
void run_direct_packed(const LinearArgs& args, const LinearKernels& kernels, const Matrix& x,
                       std::int64_t column_from, std::int64_t column_to, float* panel) {
  for (std::int64_t column = column_from; column < column_to; column += kColumnStep) {
    const std::int64_t columns = std::min(kColumnStep, column_to - column);
    for (std::int64_t k = 0; k < args.in_features; k += kDepthBlock) {
      const std::int64_t depth = std::min(kDepthBlock, args.in_features - k);
      if (args.rows <= kernels.packed_rows && columns == kColumnStep &&
          depth % (4 * args.weight.format.group) == 0) {
        multiply_packed(args, kernels, x, column, columns, k, depth);
      } else {
        widen_and_multiply(args, kernels, x, column, columns, k, depth, panel);
      }
    }
  }
}

// Many rows: a panel of weights is widened into scratch once and used by all of them.
void run_panel(const LinearArgs& args, const LinearKernels& kernels, std::int64_t column_from,
               std::int64_t column_to, float* scratch) {
  float* panel = scratch;
  float* x_tile = panel + kPanelRows * kScratchStride;
  for (std::int64_t k = 0; k < args.in_features; k += kDepthBlock) {
    const std::int64_t depth = std::min(kDepthBlock, args.in_features - k);
    widen_rows(args, kernels, column_from, column_to - column_from, k, depth, panel);
    for (std::int64_t row = 0; row < args.rows; row += kernels.tile_rows) {
      const std::int64_t rows = std::min(kernels.tile_rows, args.rows - row);
      for (std::int64_t i = 0; i < rows; ++i) {
        kernels.copy_padded(args.x + (row + i) * args.in_features + k, depth,
                            x_tile + i * kScratchStride);
      }
      auto block = make_block<LinearBlock<float>>(args, row, rows, column_from,
                                                  column_to - column_from, k, depth);
      block.x = x_tile;
      block.x_stride = kScratchStride;
      block.w = panel;
      block.w_stride = kScratchStride;
      block.depth = padded_to_lanes(depth);
      kernels.block_f32(block);
    }
  }
}

Matrix padded_x(const LinearArgs& args, const LinearKernels& kernels, float* shared) {
  if (args.in_features % kLaneCount == 0) {
    return {args.x, args.in_features};
  }
  const std::int64_t stride = padded_to_lanes(args.in_features);
  for (std::int64_t row = 0; row < args.rows; ++row) {
    kernels.copy_padded(args.x + row * args.in_features, args.in_features, shared + row * stride);
  }
  return {shared, stride};
}

// Several panels a worker, so that they end at about the same time.
std::int64_t panel_rows(std::int64_t out_features, int threads) {
  std::int64_t rows = kPanelRows;
  while (rows > kLeastPanelRows && out_features < rows * 4 * threads) {
    rows /= 2;
  }
  return rows;
}

}  // namespace

std::int64_t linear_worker_floats() { return (kPanelRows + kMaxTileRows) * kScratchStride; }

std::int64_t linear_shared_floats(std::int64_t max_in_features) {
  return kDirectTiles * kMaxTileRows * padded_to_lanes(max_in_features);
}

void linear(const LinearArgs& args, const LinearKernels& kernels, ThreadPool& pool,
            const Scratch& scratch) {
  const bool direct = args.rows <= kDirectTiles * kernels.tile_rows;
  const Matrix x =
      direct ? padded_x(args, kernels, scratch.shared()) : Matrix{args.x, args.in_features};
  const std::int64_t step = panel_rows(args.out_features, pool.threads());
  pool.parallel_for((args.out_features + step - 1) / step, [&](std::int64_t index, int worker) {
    const std::int64_t from = index * step;
    const std::int64_t to = std::min(from + step, args.out_features);
    if (direct && args.weight.format.packed()) {
      run_direct_packed(args, kernels, x, from, to, scratch.of_worker(worker));
    } else if (direct) {
      run_direct(args, kernels, x, from, to);
    } else {
      run_panel(args, kernels, from, to, scratch.of_worker(worker));
    }
  });
}

}  // namespace stagecoach::device
