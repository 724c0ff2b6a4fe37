#pragma once

// Conversions that more than one family of kernels needs.

#include "device/cuda/kernel.cuh"

namespace stagecoach::device::cuda {

__device__ inline float half_bits_to_float(unsigned bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

/// To nearest even; NaN is the host's one, whatever the GPU's conversion makes of it.
__device__ inline unsigned short float_to_half_bits(float value) {
  return value != value ? static_cast<unsigned short>(0x7e00)
                        : __half_as_ushort(__float2half_rn(value));
}

/// An input of a product: beyond f16's range the largest f16, so that no infinity comes up.
__device__ inline unsigned short input_to_half_bits(float value) {
  const float cut = value > 65504.0f ? 65504.0f : value < -65504.0f ? -65504.0f : value;
  return float_to_half_bits(cut);
}

/// The sum over a warp, in the same order in every lane.
__device__ inline float warp_sum(float value) {
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, distance);
  }
  return value;
}

}  // namespace stagecoach::device::cuda
