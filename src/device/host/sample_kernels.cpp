#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/sample_kernels.cpp"
#include <hwy/foreach_target.h>
// Must come after foreach_target.h.
#include <hwy/contrib/math/math-inl.h>

#include <limits>

#include "device/host/kernels.hpp"
#include "device/host/lanes-inl.hpp"

#if STAGECOACH_KERNEL_TARGET
HWY_BEFORE_NAMESPACE();
namespace stagecoach::device {
namespace HWY_NAMESPACE {
namespace {

inline constexpr std::int64_t kDoubles = 8;
inline constexpr std::int64_t kDoubleRegister = kRegister / 2;
inline constexpr std::int64_t kDoubleRegisters = kDoubles / kDoubleRegister;
using DoubleTag = hn::FixedTag<double, kDoubleRegister>;
using Double = hn::Vec<DoubleTag>;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

HWY_INLINE Register load_or_pad(const float* from, std::int64_t count, float padding) {
  if (count >= kRegister) {
    return load(from);
  }
  float padded[kRegister];
  for (std::int64_t i = 0; i < kRegister; ++i) {
    padded[i] = i < count ? from[i] : padding;
  }
  return load(padded);
}

std::int64_t find_first(const float* values, std::int64_t count, float wanted) {
  const FloatTag tag;
  const Register target = hn::Set(tag, wanted);
  for (std::int64_t i = 0; i + kRegister <= count; i += kRegister) {
    const auto equal = hn::Eq(load(values + i), target);
    if (!hn::AllFalse(tag, equal)) {
      return i + hn::FindFirstTrue(tag, equal);
    }
  }
  for (std::int64_t i = count / kRegister * kRegister; i < count; ++i) {
    if (values[i] == wanted) {
      return i;
    }
  }
  return 0;
}

LogitSummary summarize(const float* logits, std::int64_t count) {
  const FloatTag tag;
  Register max = hn::Set(tag, kMinusInfinity);
  bool has_nan = false;
  for (std::int64_t i = 0; i < count; i += kRegister) {
    const Register value = load_or_pad(logits + i, count - i, kMinusInfinity);
    max = hn::IfThenElse(hn::Gt(value, max), value, max);
    has_nan = has_nan || !hn::AllTrue(tag, hn::Eq(value, value));
  }
  const float top = hn::GetLane(hn::MaxOfLanes(tag, max));
  return {top, find_first(logits, count, top), has_nan};
}

double fold_doubles(const Double (&sums)[kDoubleRegisters]) {
  double lanes[kDoubles];
  HWY_UNROLL(2)
  for (std::int64_t r = 0; r < kDoubleRegisters; ++r) {
    hn::StoreU(sums[r], DoubleTag(), lanes + r * kDoubleRegister);
  }
  for (std::int64_t width = kDoubles / 2; width > 0; width /= 2) {
    for (std::int64_t i = 0; i < width; ++i) {
      lanes[i] += lanes[i + width];
    }
  }
  return lanes[0];
}

double sum_exp(const float* logits, std::int64_t count, double max, double temperature) {
  const DoubleTag tag;
  const hn::Rebind<float, DoubleTag> narrow;
  const Double shift = hn::Set(tag, max);
  const Double divisor = hn::Set(tag, temperature);
  Double sums[kDoubleRegisters];
  HWY_UNROLL(2)
  for (std::int64_t r = 0; r < kDoubleRegisters; ++r) {
    sums[r] = hn::Zero(tag);
  }
  float padded[kDoubles];
  for (std::int64_t i = 0; i < count; i += kDoubles) {
    const float* from = logits + i;
    if (count - i < kDoubles) {
      for (std::int64_t k = 0; k < kDoubles; ++k) {
        padded[k] = i + k < count ? logits[i + k] : kMinusInfinity;
      }
      from = padded;
    }
    HWY_UNROLL(2)
    for (std::int64_t r = 0; r < kDoubleRegisters; ++r) {
      const Double value = hn::PromoteTo(tag, hn::LoadU(narrow, from + r * kDoubleRegister));
      sums[r] = hn::Add(sums[r], hn::Exp(tag, hn::Div(hn::Sub(value, shift), divisor)));
    }
  }
  return fold_doubles(sums);
}

}  // namespace

const SampleKernels& sample_table() {
  static constexpr SampleKernels kTable{summarize, sum_exp};
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::device
HWY_AFTER_NAMESPACE();
#endif  // STAGECOACH_KERNEL_TARGET

#if HWY_ONCE
namespace stagecoach::device {

const SampleKernels& sample_kernels(Isa isa) {
  return isa == Isa::avx512 ? N_AVX3::sample_table() : N_AVX2::sample_table();
}

}  // namespace stagecoach::device
#endif
