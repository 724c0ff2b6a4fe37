// A token's keys or values of one KV head into a page: the bits that base/packing.hpp's `pack`
// gives. Included by attention_kernels.cpp for each target.
#if defined(STAGECOACH_ATTENTION_PACK_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_ATTENTION_PACK_INL
#undef STAGECOACH_ATTENTION_PACK_INL
#else
#define STAGECOACH_ATTENTION_PACK_INL
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/packing.hpp"
#include "device/host/lanes-inl.hpp"

#if STAGECOACH_KERNEL_TARGET
HWY_BEFORE_NAMESPACE();
namespace stagecoach::device {
namespace HWY_NAMESPACE {

using IntTag = hn::RebindToSigned<FloatTag>;
using ByteTag = hn::Rebind<std::uint8_t, FloatTag>;

inline constexpr std::int64_t kMaxGroup = 128;

/// The parameters of `count` numbers (a multiple of 16).
HWY_INLINE GroupParams find_params(const PackFormat& format, const float* values,
                                   std::int64_t count) {
  const FloatTag tag;
  Register smallest = load(values);
  Register largest = smallest;
  Register differences = hn::Zero(tag);  // NaN where a number is not finite
  for (std::int64_t i = 0; i < count; i += kRegister) {
    const Register value = load(values + i);
    smallest = hn::Min(smallest, value);
    largest = hn::Max(largest, value);
    differences = hn::Add(differences, hn::Sub(value, value));
  }
  float low = hn::GetLane(hn::MinOfLanes(tag, smallest));
  float high = hn::GetLane(hn::MaxOfLanes(tag, largest));
  const float difference = hn::GetLane(hn::SumOfLanes(tag, differences));
  if (low == 0) {
    low = *std::find(values, values + count, 0.0f);  // zeros have signs: the first one's counts
  }
  return group_params(format, difference == 0 ? low : difference, high == low ? low : high);
}

/// Codes of `count` numbers (a multiple of 16), a byte each.
HWY_INLINE void find_codes(const PackFormat& format, const GroupParams& params, const float* values,
                           std::int64_t count, std::uint8_t* codes) {
  const FloatTag tag;
  const float scale = to_float(params.scale);
  if (!(scale > 0)) {
    std::memset(codes, 0, static_cast<std::size_t>(count));
    return;
  }
  const Register minimum = hn::Set(tag, to_float(params.minimum));
  const Register divisor = hn::Set(tag, scale);
  const Register highest = hn::Set(tag, format.packing == Packing::int4 ? 15.0f : 255.0f);
  for (std::int64_t i = 0; i < count; i += kRegister) {
    const Register code = hn::Round(hn::Div(hn::Sub(load(values + i), minimum), divisor));
    const Register cut = hn::Min(hn::Max(code, hn::Zero(tag)), highest);
    hn::StoreU(hn::DemoteTo(ByteTag(), hn::ConvertTo(IntTag(), cut)), ByteTag(), codes + i);
  }
}

HWY_INLINE void store_codes(const PackFormat& format, const std::uint8_t* codes, std::int64_t count,
                            std::byte* to) {
  if (format.packing == Packing::int8) {
    std::memcpy(to, codes, static_cast<std::size_t>(count));
    return;
  }
  constexpr std::int64_t kHalf = kCodeBlock / 2;
  for (std::int64_t i = 0; i < count; i += kCodeBlock, to += kHalf) {
    for (std::int64_t j = 0; j < kHalf; ++j) {
      to[j] = static_cast<std::byte>(codes[i + j] | codes[i + j + kHalf] << 4);
    }
  }
}

/// `pack`, for groups of at most kMaxGroup.
inline void pack_run(const PackFormat& format, const float* from, std::int64_t count,
                     std::byte* params, std::byte* codes) {
  HWY_ALIGN float padded[kMaxGroup];
  HWY_ALIGN std::uint8_t bytes[kMaxGroup];
  for (std::int64_t first = 0; first < count; first += format.group) {
    const std::int64_t size = std::min(format.group, count - first);
    const std::int64_t lanes = (size + kLanes - 1) / kLanes * kLanes;
    const float* values = from + first;
    if (lanes > size) {
      std::copy_n(values, size, padded);
      std::fill(padded + size, padded + lanes, values[size - 1]);
      values = padded;
    }
    const auto found = find_params(format, values, lanes);
    std::memcpy(params, &found, sizeof(found));
    params += sizeof(found);
    find_codes(format, found, values, lanes, bytes);
    const std::int64_t filled = (size + kCodeBlock - 1) / kCodeBlock * kCodeBlock;
    std::fill(bytes + size, bytes + filled, std::uint8_t{0});
    store_codes(format, bytes, filled, codes);
    codes += code_bytes(format, size);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::device
HWY_AFTER_NAMESPACE();
#endif  // STAGECOACH_KERNEL_TARGET
#endif  // STAGECOACH_ATTENTION_PACK_INL
