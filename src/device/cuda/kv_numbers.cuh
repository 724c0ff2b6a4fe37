#pragma once

// The numbers of pages, read in units of eight.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "device/cuda/attention_work.hpp"
#include "device/cuda/kernel.cuh"

namespace stagecoach::device::cuda {

inline constexpr int kUnit = 8;

__device__ inline int units_of(const KvLayout& layout) {
  return (layout.head_dim + kUnit - 1) / kUnit;
}

__device__ inline bool is_aligned(const void* data, unsigned size_bytes) {
  return (reinterpret_cast<std::uintptr_t>(data) & (size_bytes - 1)) == 0;
}

/// K of a KV head in a page; V with `kv_head` + kv_heads.
__device__ inline const std::byte* head_in_page(const KvLayout& layout, const std::byte* page,
                                                int kv_head) {
  return page + kv_head * layout.head_bytes;
}

__device__ inline void read_floats(const float* from, int count, float (&out)[kUnit]) {
  if (count == kUnit && is_aligned(from, sizeof(float4))) {
    const float4 low = *reinterpret_cast<const float4*>(from);
    const float4 high = *reinterpret_cast<const float4*>(from + 4);
    out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
    out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    out[i] = i < count ? from[i] : 0.0f;
  }
}

__device__ inline void widen_pair(unsigned pair, float& first, float& second) {
  first = __half2float(__ushort_as_half(static_cast<unsigned short>(pair & 0xffffu)));
  second = __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16)));
}

__device__ inline void read_halves(const __half* from, int count, float (&out)[kUnit]) {
  if (count == kUnit && is_aligned(from, sizeof(uint4))) {
    const uint4 halves = *reinterpret_cast<const uint4*>(from);
    widen_pair(halves.x, out[0], out[1]);
    widen_pair(halves.y, out[2], out[3]);
    widen_pair(halves.z, out[4], out[5]);
    widen_pair(halves.w, out[6], out[7]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    out[i] = i < count ? __half2float(from[i]) : 0.0f;
  }
}

/// Eight bytes: the first four in x, lowest first.
__device__ inline uint2 read_codes(const std::byte* from) {
  if (is_aligned(from, sizeof(uint2))) {
    return *reinterpret_cast<const uint2*>(from);
  }
  // Codes begin at multiples of 4 from the page's begin.
  const auto* words = reinterpret_cast<const unsigned*>(from);
  uint2 codes;
  codes.x = words[0];
  codes.y = words[1];
  return codes;
}

/// int8: eight bytes of the unit. int4: a block of 32 codes has its units 0 and 1 in the lower
/// halves of its 16 bytes, 2 and 3 in the upper ones.
template <KvType Type>
__device__ inline void read_packed(const KvLayout& layout, const std::byte* head, int slot,
                                   int unit, float (&out)[kUnit]) {
  const std::byte* codes = head + 4 * layout.groups * layout.page_tokens +
                           static_cast<std::int64_t>(slot) * layout.code_bytes;
  const int group = unit * kUnit / layout.group;
  const float2 params =
      __half22float2(*(reinterpret_cast<const __half2*>(head) + slot * layout.groups + group));
  uint2 bytes;
  unsigned mask = 0xff;
  if constexpr (Type == KvType::int8) {
    bytes = read_codes(codes + unit * kUnit);
  } else {
    bytes = read_codes(codes + unit / 4 * 16 + unit % 2 * 8);
    const int shift = unit % 4 < 2 ? 0 : 4;
    bytes.x >>= shift;
    bytes.y >>= shift;
    mask = 0xf;
  }
#pragma unroll
  for (int i = 0; i < kUnit; ++i) {
    const unsigned code = ((i < 4 ? bytes.x : bytes.y) >> (i % 4 * 8)) & mask;
    const bool inside = unit * kUnit + i < layout.head_dim;
    out[i] = inside ? fmaf(static_cast<float>(code), params.y, params.x) : 0.0f;
  }
}

/// Numbers 8 * unit .. of a slot of the KV head at `head`; those behind the last are 0.
template <KvType Type>
__device__ inline void read_unit(const KvLayout& layout, const std::byte* head, int slot, int unit,
                                 float (&out)[kUnit]) {
  if constexpr (Type == KvType::int8 || Type == KvType::int4) {
    read_packed<Type>(layout, head, slot, unit, out);
  } else {
    const std::int64_t at = static_cast<std::int64_t>(slot) * layout.head_dim + unit * kUnit;
    const int rest = layout.head_dim - unit * kUnit;
    const int count = rest < kUnit ? rest : kUnit;
    if constexpr (Type == KvType::f16) {
      read_halves(reinterpret_cast<const __half*>(head) + at, count, out);
    } else {
      read_floats(reinterpret_cast<const float*>(head) + at, count, out);
    }
  }
}

}  // namespace stagecoach::device::cuda
