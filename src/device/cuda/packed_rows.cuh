#pragma once

// How kernels read packed rows (base/packing.hpp).

#include <cstdint>

#include "device/cuda/numbers.cuh"

namespace stagecoach::device::cuda {

/// Packed rows of one matrix.
struct PackedRows {
  const unsigned char* data = nullptr;
  std::int64_t row_bytes = 0;
  std::int64_t params_bytes = 0;  ///< in front of a row's codes
  std::int64_t columns = 0;
  int group_shift = 0;  ///< log2 of a group
};

/// What one thread reads at once: eight codes, a quarter of a block of 32. int8: 8 columns in
/// order. int4: 4 columns, and the 4 that are 16 further.
inline constexpr int kUnit = 8;
inline constexpr int kUnitsOfBlock = 4;

inline __host__ __device__ std::int64_t units_of(std::int64_t columns) {
  return (columns + 31) / 32 * kUnitsOfBlock;
}

/// The column of number `i` of a unit; past the row's end where the last block is filled up.
template <bool kInt4>
__device__ inline std::int64_t unit_column(std::int64_t unit, int i) {
  return kInt4 ? unit / 4 * 32 + unit % 4 * 4 + (i & 3) + (i & 4) * 4 : unit * kUnit + i;
}

/// Four bytes, the first one lowest. kAligned: at a multiple of 4.
template <bool kAligned>
__device__ inline unsigned load_word(const unsigned char* from) {
  if constexpr (kAligned) {
    return *reinterpret_cast<const unsigned*>(from);
  } else {
    return from[0] | static_cast<unsigned>(from[1]) << 8 | static_cast<unsigned>(from[2]) << 16 |
           static_cast<unsigned>(from[3]) << 24;
  }
}

/// A unit as it lies: its codes, and its group's minimum (lower half) and scale.
struct PackedUnit {
  unsigned codes[2];
  unsigned params;
};

/// kAligned: `row` is a multiple of 16.
template <bool kInt4, bool kAligned>
__device__ inline PackedUnit load_unit(const PackedRows& rows, const unsigned char* row,
                                       std::int64_t unit) {
  const std::int64_t group = (unit / kUnitsOfBlock * 32) >> rows.group_shift;
  PackedUnit loaded;
  loaded.params = load_word<kAligned>(row + 4 * group);
  const unsigned char* const codes = row + rows.params_bytes;
  if constexpr (kInt4) {
    loaded.codes[0] = load_word<kAligned>(codes + 4 * unit);
    loaded.codes[1] = 0;
  } else if constexpr (kAligned) {
    const uint2 both = *reinterpret_cast<const uint2*>(codes + 8 * unit);
    loaded.codes[0] = both.x;
    loaded.codes[1] = both.y;
  } else {
    loaded.codes[0] = load_word<false>(codes + 8 * unit);
    loaded.codes[1] = load_word<false>(codes + 8 * unit + 4);
  }
  return loaded;
}

/// Number `i` of a unit, f16 bits: minimum + code * scale rounded to f32 once, and then to f16.
template <bool kInt4>
__device__ inline unsigned short unit_half_bits(const PackedUnit& unit, int i) {
  const unsigned code = kInt4 ? (unit.codes[0] >> ((i & 3) * 8 + (i & 4))) & 15u
                              : (unit.codes[i / 4] >> (i % 4 * 8)) & 255u;
  // 2^23 + code is a float whose last bits are the code: cheaper than a conversion.
  const float number = __uint_as_float(0x4b000000u | code) - 8388608.0f;
  return float_to_half_bits(fmaf(number, half_bits_to_float(unit.params >> 16),
                                 half_bits_to_float(unit.params & 0xffffu)));
}

}  // namespace stagecoach::device::cuda
