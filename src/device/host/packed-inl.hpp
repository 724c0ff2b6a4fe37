// Packed rows (base/packing.hpp) as lanes. Included once for each target by the kernel files, after
// lanes-inl.hpp; hence no #pragma once.
#if defined(STAGECOACH_PACKED_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_PACKED_INL
#undef STAGECOACH_PACKED_INL
#else
#define STAGECOACH_PACKED_INL
#endif

#include <immintrin.h>

#include <algorithm>

#include "device/host/kernels.hpp"

#if STAGECOACH_KERNEL_TARGET
HWY_BEFORE_NAMESPACE();
namespace stagecoach::device {
namespace HWY_NAMESPACE {

/// The nearest f16 numbers.
HWY_INLINE Lanes round_to_half(const Lanes& lanes) {
  Lanes result;
  HWY_UNROLL(2)
  for (int i = 0; i < kRegisters; ++i) {
    result.r[i] = hn::PromoteTo(FloatTag(), hn::DemoteTo(HalfTag(), lanes.r[i]));
  }
  return result;
}

HWY_INLINE void store_lanes(const Lanes& lanes, Half* to) {
  HWY_UNROLL(2)
  for (int i = 0; i < kRegisters; ++i) {
    hn::StoreU(hn::DemoteTo(HalfTag(), lanes.r[i]), HalfTag(),
               reinterpret_cast<hwy::float16_t*>(to + i * kRegister));
  }
}

using CodeTag = hn::RebindToUnsigned<FloatTag>;
using Codes = hn::Vec<CodeTag>;

/// Sixteen bytes.
struct CodeLanes {
  Codes r[kRegisters];
};

HWY_INLINE CodeLanes load_codes(const std::byte* from) {
  CodeLanes codes;
  HWY_UNROLL(2)
  for (int i = 0; i < kRegisters; ++i) {
    const hn::Rebind<std::uint8_t, CodeTag> bytes;
    codes.r[i] = hn::PromoteTo(
        CodeTag(), hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(from) + i * kRegister));
  }
  return codes;
}

/// What codes of one group mean: the nearest f16 number to minimum + code * scale.
HWY_INLINE Lanes number_lanes(const CodeLanes& codes, const Lanes& minimum, const Lanes& scale) {
  Lanes numbers;
  HWY_UNROLL(2)
  for (int i = 0; i < kRegisters; ++i) {
    const hn::RebindToSigned<FloatTag> integers;
    numbers.r[i] = hn::ConvertTo(FloatTag(), hn::BitCast(integers, codes.r[i]));
  }
  return round_to_half(multiply_add(numbers, scale, minimum));
}

/// One group of int8 codes.
class Int8Group {
 public:
  Int8Group() = default;
  HWY_INLINE Int8Group(const Lanes& minimum, const Lanes& scale)
      : minimum_(minimum), scale_(scale) {}

  static constexpr std::int64_t kBlockBytes = kCodeBlock;

  /// The numbers of a block of 32 codes.
  HWY_INLINE void numbers(const std::byte* block, Lanes& lower, Lanes& upper) const {
    lower = number_lanes(load_codes(block), minimum_, scale_);
    upper = number_lanes(load_codes(block + kLanes), minimum_, scale_);
  }

 private:
  Lanes minimum_;
  Lanes scale_;
};

alignas(64) inline constexpr float kInt4Codes[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                         8, 9, 10, 11, 12, 13, 14, 15};

#if HWY_TARGET == HWY_AVX3
/// One group of int4 codes: what the sixteen codes mean is one register, to look up.
class Int4Group {
 public:
  Int4Group() = default;
  HWY_INLINE Int4Group(const Lanes& minimum, const Lanes& scale)
      : table_(round_to_half(multiply_add(load_lanes(kInt4Codes), scale, minimum))) {}

  static constexpr std::int64_t kBlockBytes = kCodeBlock / 2;

  HWY_INLINE void numbers(const std::byte* block, Lanes& lower, Lanes& upper) const {
    const Codes bytes = load_codes(block).r[0];
    lower = look_up(bytes);
    upper = look_up(hn::ShiftRight<4>(bytes));
  }

 private:
  // The instruction takes no more than four bits of an index; Highway would want them cut before.
  [[nodiscard]] HWY_INLINE Lanes look_up(Codes codes) const {
    return {{Register{_mm512_permutexvar_ps(codes.raw, table_.r[0].raw)}}};
  }

  Lanes table_;
};
#else
/// One group of int4 codes: what the sixteen codes mean is two tables, of the numbers' lower and
/// upper bytes.
class Int4Group {
 public:
  Int4Group() = default;
  HWY_INLINE Int4Group(const Lanes& minimum, const Lanes& scale) {
    const Lanes numbers = multiply_add(load_lanes(kInt4Codes), scale, minimum);
    const auto first = hn::BitCast(ByteTag(), hn::DemoteTo(HalfTag(), numbers.r[0]));
    const auto second = hn::BitCast(ByteTag(), hn::DemoteTo(HalfTag(), numbers.r[1]));
    lower_bytes_ = hn::ConcatEven(ByteTag(), second, first);
    upper_bytes_ = hn::ConcatOdd(ByteTag(), second, first);
  }

  static constexpr std::int64_t kBlockBytes = kCodeBlock / 2;

  HWY_INLINE void numbers(const std::byte* block, Lanes& lower, Lanes& upper) const {
    const hn::RepartitionToWide<ByteTag> words;
    const auto four_bits = hn::Set(ByteTag(), std::uint8_t{15});
    const auto bytes = hn::LoadU(ByteTag(), reinterpret_cast<const std::uint8_t*>(block));
    const auto shifted = hn::BitCast(ByteTag(), hn::ShiftRight<4>(hn::BitCast(words, bytes)));
    lower = look_up(hn::And(bytes, four_bits));
    upper = look_up(hn::And(shifted, four_bits));
  }

 private:
  using ByteTag = hn::FixedTag<std::uint8_t, kLanes>;
  using Bytes = hn::Vec<ByteTag>;

  [[nodiscard]] HWY_INLINE Lanes look_up(Bytes codes) const {
    const auto lower = hn::TableLookupBytes(lower_bytes_, codes);
    const auto upper = hn::TableLookupBytes(upper_bytes_, codes);
    const auto first = hn::InterleaveLower(ByteTag(), lower, upper);
    const auto second = hn::InterleaveUpper(ByteTag(), lower, upper);
    return {{hn::PromoteTo(FloatTag(), hn::BitCast(HalfTag(), first)),
             hn::PromoteTo(FloatTag(), hn::BitCast(HalfTag(), second))}};
  }

  Bytes lower_bytes_;
  Bytes upper_bytes_;
};
#endif

// Parameters are widened four groups at once; a row has room for a whole number of fours.
inline constexpr std::int64_t kGroups = 4;

HWY_INLINE void widen_params(const std::byte* params, float (&wide)[2 * kGroups]) {
  const hn::FixedTag<float, 2 * kGroups> tag;
  const hn::Rebind<hwy::float16_t, decltype(tag)> halves;
  const auto* from = reinterpret_cast<const hwy::float16_t*>(params);
  hn::StoreU(hn::PromoteTo(tag, hn::LoadU(halves, from)), tag, wide);
}

template <int Rows, int Columns>
HWY_INLINE void add_products(const float* x, std::int64_t x_stride, const Lanes (&w)[Columns],
                             Lanes (&sums)[Rows][Columns]) {
  HWY_UNROLL(8)
  for (int i = 0; i < Rows; ++i) {
    Lanes xi = load_lanes(x + i * x_stride);
    HWY_UNROLL(2)
    for (int part = 0; part < kRegisters; ++part) {
      keep_in_register(xi.r[part]);
    }
    HWY_UNROLL(4)
    for (int j = 0; j < Columns; ++j) {
      sums[i][j] = multiply_add(xi, w[j], sums[i][j]);
    }
  }
}

inline constexpr std::int64_t kLineBytes = 64;

HWY_INLINE void fetch(const std::byte* line) {
  _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0);
}

/// Four whole groups of kBlocks blocks each; `soon`: codes to fetch meanwhile.
template <typename Group, int kBlocks, typename Sink>
HWY_INLINE void widen_four(const std::byte* params, const std::byte* codes, const std::byte* soon,
                           std::int64_t at, const Sink& sink) {
  float wide[2 * kGroups];
  widen_params(params, wide);
  HWY_UNROLL(8)
  for (std::int64_t i = 0; i < kGroups * kBlocks * Group::kBlockBytes; i += kLineBytes) {
    fetch(soon + i);
  }
  HWY_UNROLL(4)
  for (int g = 0; g < kGroups; ++g) {
    const Group group(set_lanes(wide[2 * g]), set_lanes(wide[2 * g + 1]));
    HWY_UNROLL(4)
    for (int b = 0; b < kBlocks; ++b) {
      const int block = g * kBlocks + b;
      Lanes lower;
      Lanes upper;
      group.numbers(codes + block * Group::kBlockBytes, lower, upper);
      sink.put(lower, at + block * kCodeBlock);
      sink.put(upper, at + block * kCodeBlock + kLanes);
    }
  }
}

/// The last groups of a run, fewer than four whole ones.
template <typename Group, typename Sink>
HWY_NOINLINE void widen_last(const PackedRun& run, const std::byte* params, const std::byte* codes,
                             std::int64_t at, Sink sink) {
  float wide[2 * kGroups];
  widen_params(params, wide);
  for (const float* of_group = wide; at < run.count; of_group += 2) {
    const Group group(set_lanes(of_group[0]), set_lanes(of_group[1]));
    const std::int64_t end = std::min(at + run.group, run.count);
    for (; at < end; at += kCodeBlock, codes += Group::kBlockBytes) {
      Lanes lower;
      Lanes upper;
      group.numbers(codes, lower, upper);
      sink.put_partly(lower, at, std::min(end - at, kLanes));
      if (end - at > kLanes) {
        sink.put_partly(upper, at + kLanes, std::min(end - at - kLanes, kLanes));
      }
    }
  }
}

template <typename Group, int kBlocks, typename Sink>
HWY_INLINE void widen_groups(const PackedRun& run, const Sink& sink) {
  constexpr std::int64_t kNumbers = kGroups * kBlocks * kCodeBlock;
  const std::byte* params = run.params;
  const std::byte* codes = run.codes;
  const std::byte* soon = run.soon_codes;
  fetch(run.soon_params);
  std::int64_t at = 0;
  for (; at + kNumbers <= run.count; at += kNumbers) {
    widen_four<Group, kBlocks>(params, codes, soon, at, sink);
    params += kGroups * 4;
    codes += kGroups * kBlocks * Group::kBlockBytes;
    soon += kGroups * kBlocks * Group::kBlockBytes;
  }
  if (at < run.count) {
    widen_last<Group>(run, params, codes, at, sink);
  }
}

template <typename Group, typename Sink>
HWY_INLINE void widen_groups(const PackedRun& run, const Sink& sink) {
  switch (run.group) {
    case 32:
      return widen_groups<Group, 1>(run, sink);
    case 64:
      return widen_groups<Group, 2>(run, sink);
    case 128:
      return widen_groups<Group, 4>(run, sink);
    default:
      HWY_ABORT("groups of %d", static_cast<int>(run.group));
  }
}

/// `dot_tile` with packed rows of w, `stride_bytes` apart, of which `run` is the first; four groups
/// divide its length.
template <typename Group, int Rows, int Columns>
HWY_INLINE void dot_packed_tile(const float* HWY_RESTRICT x, std::int64_t x_stride,
                                const PackedRun& run, std::int64_t stride_bytes,
                                Lanes (&sums)[Rows][Columns]) {
  clear(sums);
  const std::int64_t four_bytes = kGroups * run.group / kCodeBlock * Group::kBlockBytes;
  const std::byte* codes = run.codes;
  for (std::int64_t four = 0; four * kGroups * run.group < run.count; ++four) {
    float wide[Columns][2 * kGroups];
    for (int j = 0; j < Columns; ++j) {
      const std::int64_t params = j * stride_bytes + four * kGroups * 4;
      widen_params(run.params + params, wide[j]);
      fetch(run.soon_params + params);
      for (std::int64_t i = 0; i < four_bytes; i += kLineBytes) {
        fetch(run.soon_codes + j * stride_bytes + four * four_bytes + i);
      }
    }
    for (int g = 0; g < kGroups; ++g) {
      Group groups[Columns];
      HWY_UNROLL(4)
      for (int j = 0; j < Columns; ++j) {
        groups[j] = Group(set_lanes(wide[j][2 * g]), set_lanes(wide[j][2 * g + 1]));
      }
      for (std::int64_t k = 0; k < run.group; k += kCodeBlock) {
        Lanes lower[Columns];
        Lanes upper[Columns];
        HWY_UNROLL(4)
        for (int j = 0; j < Columns; ++j) {
          groups[j].numbers(codes + j * stride_bytes, lower[j], upper[j]);
        }
        add_products(x, x_stride, lower, sums);
        add_products(x + kLanes, x_stride, upper, sums);
        codes += Group::kBlockBytes;
        x += kCodeBlock;
      }
    }
  }
}

/// Gives what a run means to `sink`: put(lanes, at) for sixteen numbers from `at` on, and near the
/// end put_partly(lanes, at, count) for at most sixteen.
template <typename Sink>
HWY_INLINE void widen_run(const PackedRun& run, const Sink& sink) {
  if (run.packing == Packing::int4) {
    widen_groups<Int4Group>(run, sink);
  } else {
    widen_groups<Int8Group>(run, sink);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::device
HWY_AFTER_NAMESPACE();
#endif  // STAGECOACH_KERNEL_TARGET
#endif  // STAGECOACH_PACKED_INL
