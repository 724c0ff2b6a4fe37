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

HWY_INLINE CodeLanes upper_halves(const CodeLanes& bytes) {
  CodeLanes codes;
  HWY_UNROLL(2)
  for (int i = 0; i < kRegisters; ++i) {
    codes.r[i] = hn::ShiftRight<4>(bytes.r[i]);
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

#if HWY_TARGET == HWY_AVX3
/// One group of int4 codes: what the sixteen codes mean is one register, to look up.
class Int4Group {
 public:
  HWY_INLINE Int4Group(const Lanes& minimum, const Lanes& scale)
      : table_(round_to_half(multiply_add({{hn::Iota(FloatTag(), 0.0f)}}, scale, minimum))) {}

  static constexpr std::int64_t kBlockBytes = kCodeBlock / 2;

  HWY_INLINE void numbers(const std::byte* block, Lanes& lower, Lanes& upper) const {
    const CodeLanes bytes = load_codes(block);
    lower = look_up(bytes);
    upper = look_up(upper_halves(bytes));
  }

 private:
  // The instruction takes no more than four bits of an index; Highway would want them cut before.
  [[nodiscard]] HWY_INLINE Lanes look_up(const CodeLanes& codes) const {
    return {{Register{_mm512_permutexvar_ps(codes.r[0].raw, table_.r[0].raw)}}};
  }

  Lanes table_;
};
#else
/// One group of int4 codes.
class Int4Group {
 public:
  HWY_INLINE Int4Group(const Lanes& minimum, const Lanes& scale)
      : minimum_(minimum), scale_(scale) {}

  static constexpr std::int64_t kBlockBytes = kCodeBlock / 2;

  HWY_INLINE void numbers(const std::byte* block, Lanes& lower, Lanes& upper) const {
    const CodeLanes bytes = load_codes(block);
    lower = number_lanes(lower_halves(bytes), minimum_, scale_);
    upper = number_lanes(upper_halves(bytes), minimum_, scale_);
  }

 private:
  static HWY_INLINE CodeLanes lower_halves(const CodeLanes& bytes) {
    CodeLanes codes;
    HWY_UNROLL(2)
    for (int i = 0; i < kRegisters; ++i) {
      codes.r[i] = hn::And(bytes.r[i], hn::Set(CodeTag(), 15u));
    }
    return codes;
  }

  Lanes minimum_;
  Lanes scale_;
};
#endif

/// The last numbers of a row, fewer than a block of codes.
template <typename Sink>
HWY_INLINE void put_partly(const Lanes& lower, const Lanes& upper, std::int64_t at,
                           std::int64_t count, const Sink& sink) {
  sink.put_partly(lower, at, std::min(count, kLanes));
  if (count > kLanes) {
    sink.put_partly(upper, at + kLanes, count - kLanes);
  }
}

template <typename Group, typename Sink>
HWY_INLINE void widen_group(const Group& group, const std::byte* codes, std::int64_t from,
                            std::int64_t to, const Sink& sink) {
  Lanes lower;
  Lanes upper;
  for (; from + kCodeBlock <= to; from += kCodeBlock) {
    group.numbers(codes + from / kCodeBlock * Group::kBlockBytes, lower, upper);
    sink.put(lower, from);
    sink.put(upper, from + kLanes);
  }
  if (from < to) {
    group.numbers(codes + from / kCodeBlock * Group::kBlockBytes, lower, upper);
    put_partly(lower, upper, from, to - from, sink);
  }
}

template <typename Group, typename Sink>
HWY_INLINE void widen_groups(const PackedRun& run, const Sink& sink) {
  // Parameters are widened four groups at once; a row has a whole number of fours.
  constexpr std::int64_t kGroups = 4;
  const hn::FixedTag<float, 2 * kGroups> params_tag;
  const hn::Rebind<hwy::float16_t, decltype(params_tag)> halves_tag;
  const auto* params = reinterpret_cast<const hwy::float16_t*>(run.params);
  for (std::int64_t first = 0; first < run.count; first += kGroups * run.group) {
    float wide[2 * kGroups];
    hn::StoreU(hn::PromoteTo(params_tag, hn::LoadU(halves_tag, params)), params_tag, wide);
    params += 2 * kGroups;
    const std::int64_t end = std::min(first + kGroups * run.group, run.count);
    const float* of_group = wide;
    for (std::int64_t from = first; from < end; from += run.group) {
      const Group group(set_lanes(of_group[0]), set_lanes(of_group[1]));
      of_group += 2;
      widen_group(group, run.codes, from, std::min(from + run.group, end), sink);
    }
  }
}

/// Gives what a run means to `sink`: put(lanes, at) for sixteen numbers from `at` on, and
/// put_partly(lanes, at, count) for the last ones, if fewer.
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
