#pragma once

#include <cstdint>

namespace stagecoach {

/// Storage of an IEEE 754 binary16 number. Arithmetic is done in float after widening.
struct Half {
  std::uint16_t bits = 0;
  friend bool operator==(Half, Half) = default;
};

/// Exact.
float to_float(Half value) noexcept;

/// Rounds to nearest even; overflow becomes infinity; NaN stays (quiet) NaN.
Half to_half(float value) noexcept;

/// Exact: bfloat16 is the upper half of a binary32.
float bfloat16_to_float(std::uint16_t bits) noexcept;

}  // namespace stagecoach
