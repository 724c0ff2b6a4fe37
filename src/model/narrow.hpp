#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/half.hpp"

namespace stagecoach::model {

/// Number types of checkpoints that can be stored as f16.
enum class NumberType { f16, bf16, f32 };

constexpr std::size_t bytes_of(NumberType type) { return type == NumberType::f32 ? 4 : 2; }

/// What was met while narrowing.
struct NarrowCounts {
  std::int64_t nan = 0;
  std::int64_t infinite = 0;    ///< infinite in the source
  std::int64_t overflowed = 0;  ///< finite in the source, too large for f16
  float largest = 0;            ///< largest finite magnitude among those that overflowed

  NarrowCounts& operator+=(const NarrowCounts& other);
};

/// Little-endian numbers of `type` to f16, rounded to nearest even; f16 is copied bit for bit. NaN
/// stays NaN, infinity stays infinity, what overflows becomes infinity and is counted. `source`
/// holds out.size() numbers.
NarrowCounts narrow_to_half(NumberType type, std::span<const std::byte> source,
                            std::span<Half> out);

}  // namespace stagecoach::model
