#pragma once

// Half precision as storage, and the conversions. Arithmetic on it is not offered: kernels widen.

#include <bit>
#include <cstdint>

#include "vector_types.h"

struct alignas(2) __half {
  std::uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
struct __half_raw {
  unsigned short x;
};
using half = __half;
using half2 = __half2;

/// Exact.
inline float __half2float(__half value) {
  const std::uint32_t magnitude = (value.bits & 0x7fffu) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  if (magnitude >= (0x1fu << 23)) {  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000u | magnitude);
  }
  // The exponent's bias differs by 112; the product also makes subnormal numbers normal.
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

/// To nearest, ties to even; NaN becomes 0x7fff, as on a GPU.
inline __half __float2half_rn(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return {0x7fff};
  }
  if (magnitude >= 0x477ff000u) {  // from 65520 on
    return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  }
  if (magnitude < 0x38800000u) {  // below 2^-14 the sum's last place is 2^-24
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) & 0x7fffu))};
  }
  magnitude += 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | ((magnitude - (112u << 23)) >> 13))};
}
inline __half __float2half(float value) { return __float2half_rn(value); }

inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
inline __half2 __float22half2_rn(float2 value) { return __floats2half2_rn(value.x, value.y); }
inline __half2 __float2half2_rn(float value) { return __floats2half2_rn(value, value); }
inline float2 __half22float2(__half2 value) {
  return {__half2float(value.x), __half2float(value.y)};
}
inline __half __low2half(__half2 value) { return value.x; }
inline __half __high2half(__half2 value) { return value.y; }
inline float __low2float(__half2 value) { return __half2float(value.x); }
inline float __high2float(__half2 value) { return __half2float(value.y); }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline unsigned short __half_as_ushort(__half value) { return value.bits; }
inline short __half_as_short(__half value) { return static_cast<short>(value.bits); }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline __half __short_as_half(short bits) { return {static_cast<std::uint16_t>(bits)}; }
inline bool __hisnan(__half value) { return (value.bits & 0x7fffu) > 0x7c00u; }
