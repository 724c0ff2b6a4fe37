// Sixteen lanes of float, as one AVX-512 register or two AVX2 ones. Included once for each target
// by the kernel files, after <hwy/foreach_target.h>; hence no #pragma once.
//
// A sum over an index i is kept in lane i % 16, and the lanes are folded 16 -> 8 -> 4 -> 2 -> 1,
// the upper half onto the lower one. With fused multiply-adds everywhere this makes the bits of a
// result independent of the register width.
#include <hwy/highway.h>

#if defined(STAGECOACH_LANES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_LANES_INL
#undef STAGECOACH_LANES_INL
#else
#define STAGECOACH_LANES_INL
#endif

#include <cstdint>

#include "base/half.hpp"

#undef STAGECOACH_KERNEL_TARGET
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#define STAGECOACH_KERNEL_TARGET 1
#else
#define STAGECOACH_KERNEL_TARGET 0
#endif

#if STAGECOACH_KERNEL_TARGET
HWY_BEFORE_NAMESPACE();
namespace stagecoach::device {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::int64_t kLanes = 16;
inline constexpr std::int64_t kRegister = HWY_TARGET == HWY_AVX3 ? 16 : 8;
inline constexpr std::int64_t kRegisters = kLanes / kRegister;

using FloatTag = hn::FixedTag<float, kRegister>;
using HalfTag = hn::Rebind<hwy::float16_t, FloatTag>;
using FourTag = hn::FixedTag<float, 4>;
using Register = hn::Vec<FloatTag>;
using Four = hn::Vec<FourTag>;

HWY_INLINE Register load(const float* from) { return hn::LoadU(FloatTag(), from); }
HWY_INLINE Register load(const Half* from) {
  return hn::PromoteTo(FloatTag(),
                       hn::LoadU(HalfTag(), reinterpret_cast<const hwy::float16_t*>(from)));
}

struct Lanes {
  Register r[kRegisters];
};

template <typename T>
HWY_INLINE Lanes load_lanes(const T* from) {
  Lanes lanes;
  HWY_UNROLL(2)
  for (int i = 0; i < kRegisters; ++i) {
    lanes.r[i] = load(from + i * kRegister);
  }
  return lanes;
}

/// The first `count` (< 16) elements, zeros behind: nothing past them is read.
template <typename T>
HWY_INLINE Lanes load_lanes_partly(const T* from, std::int64_t count) {
  T padded[kLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    padded[i] = from[i];
  }
  return load_lanes(padded);
}

HWY_INLINE void store_lanes(const Lanes& lanes, float* to) {
  HWY_UNROLL(2)
  for (int i = 0; i < kRegisters; ++i) {
    hn::StoreU(lanes.r[i], FloatTag(), to + i * kRegister);
  }
}

HWY_INLINE void store_lanes_partly(const Lanes& lanes, float* to, std::int64_t count) {
  float padded[kLanes];
  store_lanes(lanes, padded);
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = padded[i];
  }
}

HWY_INLINE Lanes set_lanes(float value) {
  Lanes result;
  HWY_UNROLL(2)
  for (int i = 0; i < kRegisters; ++i) {
    result.r[i] = hn::Set(FloatTag(), value);
  }
  return result;
}

HWY_INLINE Lanes add(const Lanes& a, const Lanes& b) {
  Lanes result;
  HWY_UNROLL(2)
  for (int i = 0; i < kRegisters; ++i) {
    result.r[i] = hn::Add(a.r[i], b.r[i]);
  }
  return result;
}

HWY_INLINE Lanes subtract(const Lanes& a, const Lanes& b) {
  Lanes result;
  HWY_UNROLL(2)
  for (int i = 0; i < kRegisters; ++i) {
    result.r[i] = hn::Sub(a.r[i], b.r[i]);
  }
  return result;
}

HWY_INLINE Lanes multiply(const Lanes& a, const Lanes& b) {
  Lanes result;
  HWY_UNROLL(2)
  for (int i = 0; i < kRegisters; ++i) {
    result.r[i] = hn::Mul(a.r[i], b.r[i]);
  }
  return result;
}

/// a * b + c, rounded once.
HWY_INLINE Lanes multiply_add(const Lanes& a, const Lanes& b, const Lanes& c) {
  Lanes result;
  HWY_UNROLL(2)
  for (int i = 0; i < kRegisters; ++i) {
    result.r[i] = hn::MulAdd(a.r[i], b.r[i], c.r[i]);
  }
  return result;
}

/// 16 -> 4 lanes.
HWY_INLINE Four fold_to_four(const Lanes& lanes) {
  const hn::FixedTag<float, 8> eight;
#if HWY_TARGET == HWY_AVX3
  const auto folded = hn::Add(hn::LowerHalf(eight, lanes.r[0]), hn::UpperHalf(eight, lanes.r[0]));
#else
  const auto folded = hn::Add(lanes.r[0], lanes.r[1]);
  (void)eight;
#endif
  return hn::Add(hn::LowerHalf(FourTag(), folded), hn::UpperHalf(FourTag(), folded));
}

/// The sum of all lanes.
HWY_INLINE float fold(const Lanes& lanes) {
  const auto four = fold_to_four(lanes);
  const auto two = hn::Add(four, hn::Shuffle1032(four));
  return hn::GetLane(hn::Add(two, hn::Shuffle2301(two)));
}

/// The four sums of four groups of lanes, each in the order of `fold`.
HWY_INLINE Four fold(const Lanes& a, const Lanes& b, const Lanes& c, const Lanes& d) {
  const FourTag tag;
  const auto fa = fold_to_four(a);
  const auto fb = fold_to_four(b);
  const auto fc = fold_to_four(c);
  const auto fd = fold_to_four(d);
  const auto ab = hn::Add(hn::InterleaveLower(tag, fa, fb), hn::InterleaveUpper(tag, fa, fb));
  const auto cd = hn::Add(hn::InterleaveLower(tag, fc, fd), hn::InterleaveUpper(tag, fc, fd));
  return hn::Add(hn::ConcatLowerLower(tag, cd, ab), hn::ConcatUpperUpper(tag, cd, ab));
}

/// GCC would read memory again for each use, and loads are what limits a small tile.
HWY_INLINE void keep_in_register(Register& value) { asm("" : "+v"(value.raw)); }

/// The registers of one tile of `dot_tile`: as many sums as the register file holds.
inline constexpr int kTileRows = HWY_TARGET == HWY_AVX3 ? 6 : 3;
inline constexpr int kTileColumns = HWY_TARGET == HWY_AVX3 ? 4 : 2;

template <int Rows, int Columns>
HWY_INLINE void clear(Lanes (&sums)[Rows][Columns]) {
  HWY_UNROLL(8)
  for (int i = 0; i < Rows; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < Columns; ++j) {
      sums[i][j] = set_lanes(0.0f);
    }
  }
}

/// sums[i][j] = x_i . w_j over `depth` elements, for Rows rows of x and Columns rows of w. Each sum
/// is the same bits for every shape of the tile. x must be padded with zeros to a multiple of 16; w
/// is not read beyond `depth`.
template <int Rows, int Columns, typename W>
HWY_INLINE void dot_tile(const float* HWY_RESTRICT x, std::int64_t x_stride,
                         const W* HWY_RESTRICT w, std::int64_t w_stride, std::int64_t depth,
                         Lanes (&sums)[Rows][Columns]) {
  clear(sums);
  const std::int64_t whole = depth / kLanes * kLanes;
  for (std::int64_t k = 0; k < whole; k += kLanes) {
    HWY_UNROLL(2)
    for (int part = 0; part < kRegisters; ++part) {
      const std::int64_t at = k + part * kRegister;
      Register wide[Columns];
      HWY_UNROLL(4)
      for (int j = 0; j < Columns; ++j) {
        wide[j] = load(w + j * w_stride + at);
      }
      HWY_UNROLL(8)
      for (int i = 0; i < Rows; ++i) {
        Register xi = load(x + i * x_stride + at);
        keep_in_register(xi);
        HWY_UNROLL(4)
        for (int j = 0; j < Columns; ++j) {
          sums[i][j].r[part] = hn::MulAdd(xi, wide[j], sums[i][j].r[part]);
        }
      }
    }
  }
  if (whole < depth) {
    HWY_UNROLL(4)
    for (int j = 0; j < Columns; ++j) {
      const Lanes wide = load_lanes_partly(w + j * w_stride + whole, depth - whole);
      HWY_UNROLL(8)
      for (int i = 0; i < Rows; ++i) {
        sums[i][j] = multiply_add(load_lanes(x + i * x_stride + whole), wide, sums[i][j]);
      }
    }
  }
}

/// to[i] = from[i], widened, for `count` elements, then zeros up to a multiple of 16.
template <typename T>
HWY_INLINE void widen_row(const T* from, std::int64_t count, float* to) {
  const std::int64_t whole = count / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    store_lanes(load_lanes(from + i), to + i);
  }
  if (whole < count) {
    store_lanes(load_lanes_partly(from + whole, count - whole), to + whole);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::device
HWY_AFTER_NAMESPACE();
#endif  // STAGECOACH_KERNEL_TARGET
#endif  // STAGECOACH_LANES_INL
