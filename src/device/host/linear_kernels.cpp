#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/linear_kernels.cpp"
#include <hwy/foreach_target.h>
// Must come after foreach_target.h.
#include "device/host/kernels.hpp"
#include "device/host/lanes-inl.hpp"
#include "device/host/packed-inl.hpp"

#if STAGECOACH_KERNEL_TARGET
HWY_BEFORE_NAMESPACE();
namespace stagecoach::device {
namespace HWY_NAMESPACE {
namespace {

// With more rows, registers do not hold a tile and what widens its weights.
constexpr std::int64_t kPackedRows = HWY_TARGET == HWY_AVX3 ? 4 : 3;

// What happens to four sums (V = Four) or to one (V = float) before they are stored.
HWY_INLINE void finish_four(const ProductBlock& block, Four sums, float* out, std::int64_t column) {
  const FourTag tag;
  if (block.accumulate) {
    sums = hn::Add(hn::LoadU(tag, out), sums);
  }
  if (block.last) {
    if (block.bias != nullptr) {
      const hn::Rebind<hwy::float16_t, FourTag> halves;
      const auto* bias = reinterpret_cast<const hwy::float16_t*>(block.bias + column);
      sums = hn::Add(sums, hn::PromoteTo(tag, hn::LoadU(halves, bias)));
    }
    if (block.relu) {
      const auto zero = hn::Zero(tag);
      sums = hn::IfThenElse(hn::Lt(sums, zero), zero, sums);  // keeps NaN
    }
  }
  hn::StoreU(sums, tag, out);
}

HWY_INLINE void finish_one(const ProductBlock& block, float sum, float* out, std::int64_t column) {
  if (block.accumulate) {
    sum = *out + sum;
  }
  if (block.last) {
    if (block.bias != nullptr) {
      sum = sum + to_float(block.bias[column]);
    }
    if (block.relu) {
      sum = sum < 0.0f ? 0.0f : sum;
    }
  }
  *out = sum;
}

template <int Rows, int Columns>
HWY_INLINE void finish(const ProductBlock& block, const Lanes (&sums)[Rows][Columns],
                       std::int64_t column) {
  HWY_UNROLL(8)
  for (int i = 0; i < Rows; ++i) {
    float* out = block.out + i * block.out_stride + column;
    if constexpr (Columns == 4) {
      finish_four(block, fold(sums[i][0], sums[i][1], sums[i][2], sums[i][3]), out, column);
    } else {
      HWY_UNROLL(4)
      for (int j = 0; j < Columns; ++j) {
        finish_one(block, fold(sums[i][j]), out + j, column + j);
      }
    }
  }
}

template <int Rows, int Columns, typename W>
HWY_INLINE void tile(const LinearBlock<W>& block, std::int64_t column) {
  Lanes sums[Rows][Columns];
  dot_tile(block.x, block.x_stride, block.w + column * block.w_stride, block.w_stride, block.depth,
           sums);
  finish(block, sums, column);
}

template <int Rows, typename W>
void block_of(const LinearBlock<W>& block) {
  std::int64_t column = 0;
  for (; column + kTileColumns <= block.columns; column += kTileColumns) {
    tile<Rows, kTileColumns>(block, column);
  }
  for (; column < block.columns; ++column) {
    tile<Rows, 1>(block, column);
  }
}

template <typename W>
void run_block(const LinearBlock<W>& block) {
  switch (block.rows) {
    case 1:
      return block_of<1>(block);
    case 2:
      return block_of<2>(block);
    case 3:
      return block_of<3>(block);
#if HWY_TARGET == HWY_AVX3
    case 4:
      return block_of<4>(block);
    case 5:
      return block_of<5>(block);
    case 6:
      return block_of<6>(block);
#endif
    default:
      HWY_ABORT("a tile of %d rows", static_cast<int>(block.rows));
  }
}

template <typename Group, int Rows>
void packed_block_of(const PackedBlock& block) {
  PackedRun run = block.w;
  for (std::int64_t column = 0; column < block.columns; column += kTileColumns) {
    Lanes sums[Rows][kTileColumns];
    dot_packed_tile<Group>(block.x, block.x_stride, run, block.w_stride_bytes, sums);
    finish(block, sums, column);
    for (auto* at : {&run.params, &run.codes, &run.soon_params, &run.soon_codes}) {
      *at += kTileColumns * block.w_stride_bytes;
    }
  }
}

template <typename Group>
void packed_block(const PackedBlock& block) {
  switch (block.rows) {
    case 1:
      return packed_block_of<Group, 1>(block);
    case 2:
      return packed_block_of<Group, 2>(block);
    case 3:
      return packed_block_of<Group, 3>(block);
#if HWY_TARGET == HWY_AVX3
    case 4:
      return packed_block_of<Group, 4>(block);
#endif
    default:
      HWY_ABORT("a tile of %d rows", static_cast<int>(block.rows));
  }
}

void run_packed_block(const PackedBlock& block) {
  if (block.w.packing == Packing::int4) {
    packed_block<Int4Group>(block);
  } else {
    packed_block<Int8Group>(block);
  }
}

// Rows of floats, with zeros up to a multiple of 16.
struct PaddedFloats {
  float* to;

  HWY_INLINE void put(const Lanes& lanes, std::int64_t at) const { store_lanes(lanes, to + at); }
  HWY_INLINE void put_partly(const Lanes& lanes, std::int64_t at, std::int64_t count) const {
    float padded[kLanes] = {};
    store_lanes_partly(lanes, padded, count);
    store_lanes(load_lanes(padded), to + at);
  }
};

void widen_packed(const PackedRun& run, float* to) { widen_run(run, PaddedFloats{to}); }
void widen(const Half* from, std::int64_t count, float* to) { widen_row(from, count, to); }
void copy_padded(const float* from, std::int64_t count, float* to) { widen_row(from, count, to); }

}  // namespace

const LinearKernels& linear_table() {
  static constexpr LinearKernels kTable{kTileRows,       kPackedRows,      run_block<float>,
                                        run_block<Half>, run_packed_block, widen,
                                        widen_packed,    copy_padded};
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::device
HWY_AFTER_NAMESPACE();
#endif  // STAGECOACH_KERNEL_TARGET

#if HWY_ONCE
namespace stagecoach::device {

const LinearKernels& linear_kernels(Isa isa) {
  return isa == Isa::avx512 ? N_AVX3::linear_table() : N_AVX2::linear_table();
}

}  // namespace stagecoach::device
#endif
