#include "model/narrow.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"

namespace stagecoach::model {
namespace {

constexpr std::uint16_t kExponentBits = 0x7c00;
constexpr std::uint16_t kMantissaBits = 0x03ff;

bool is_finite(Half value) { return (value.bits & kExponentBits) != kExponentBits; }

NarrowCounts copy_half(std::span<const std::byte> source, std::span<Half> out) {
  std::memcpy(out.data(), source.data(), source.size());
  NarrowCounts counts;
  for (const auto value : out) {
    const bool is_nan = !is_finite(value) && (value.bits & kMantissaBits) != 0;
    counts.nan += is_nan;
    counts.infinite += !is_finite(value) && !is_nan;
  }
  return counts;
}

void count_not_finite(float value, NarrowCounts& counts) {
  if (std::isnan(value)) {
    ++counts.nan;
  } else if (std::isinf(value)) {
    ++counts.infinite;
  } else {
    ++counts.overflowed;
    counts.largest = std::max(counts.largest, std::fabs(value));
  }
}

template <typename Stored, typename ToFloat>
NarrowCounts narrow(std::span<const std::byte> source, std::span<Half> out, ToFloat widen) {
  NarrowCounts counts;
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, source.data() + i * sizeof(Stored), sizeof(Stored));
    const float value = widen(stored);
    out[i] = to_half(value);
    if (!is_finite(out[i])) [[unlikely]] {
      count_not_finite(value, counts);
    }
  }
  return counts;
}

}  // namespace

NarrowCounts& NarrowCounts::operator+=(const NarrowCounts& other) {
  nan += other.nan;
  infinite += other.infinite;
  overflowed += other.overflowed;
  largest = std::max(largest, other.largest);
  return *this;
}

NarrowCounts narrow_to_half(NumberType type, std::span<const std::byte> source,
                            std::span<Half> out) {
  STAGECOACH_CHECK(source.size() == out.size() * bytes_of(type));
  if (out.empty()) {
    return {};
  }
  switch (type) {
    case NumberType::f16:
      return copy_half(source, out);
    case NumberType::bf16:
      return narrow<std::uint16_t>(source, out, bfloat16_to_float);
    case NumberType::f32:
      return narrow<float>(source, out, [](float value) { return value; });
  }
  return {};
}

}  // namespace stagecoach::model
