"""Group-wise quantization by the rules of src/base/packing.hpp, for whole arrays of groups."""

import numpy as np

LEAST_NORMAL = np.float32(2.0**-14)


def round_up_to_f16(x):
    """The least f16 number that is not below `x` (f32, positive)."""
    near = x.astype(np.float16)
    return np.where(near.astype(np.float32) < x, np.nextafter(near, np.float16(np.inf)), near)


def meaning(codes, minimum, scale):
    """minimum + code * scale, rounded to f32 once.

    In float64 the sum is exact: the product has 19 bits at most, and both terms are multiples of
    2^-24 below 2^25."""
    exact = codes.astype(np.float64) * scale.astype(np.float64) + minimum.astype(np.float64)
    return exact.astype(np.float32)


def overflows(value):
    return np.isinf(value.astype(np.float16))


def quantize(groups, bits):
    """f32 [..., n] -> minimum, scale (f16 [..., 1]), codes (uint8 [..., n]), a group a row."""
    highest = np.float32(2**bits - 1)
    with np.errstate(all="ignore"):
        zero = np.float32(0)  # added to -0 it is +0
        smallest = groups.min(axis=-1, keepdims=True) + zero
        largest = groups.max(axis=-1, keepdims=True) + zero
        minimum = smallest.astype(np.float16)
        exact = (largest - smallest) / highest
        scale = np.where(exact < LEAST_NORMAL, round_up_to_f16(exact), exact.astype(np.float16))
        over = overflows(meaning(np.full_like(exact, highest), minimum, scale)) & np.isfinite(scale)
        scale = np.where(over, np.nextafter(scale, np.float16(0)), scale)
        bad = ~np.isfinite(groups).all(axis=-1, keepdims=True)
        bad |= ~np.isfinite(minimum) | ~np.isfinite(scale)
        minimum = np.where(bad, np.float16(np.nan), minimum)
        scale = np.where(bad, np.float16(0), scale)
        quotient = (groups - minimum.astype(np.float32)) / scale.astype(np.float32)
        codes = np.clip(np.rint(quotient), np.float32(0), highest)
        codes = np.where(scale > 0, codes, np.float32(0)).astype(np.uint8)
    return minimum, scale, codes


def dequantized(x, bits, group, axis=-1):
    """What `x` means after quantization in whole groups along `axis`, in f32."""
    moved = np.moveaxis(x, axis, -1)
    groups = moved.astype(np.float32).reshape(*moved.shape[:-1], -1, group)
    minimum, scale, codes = quantize(groups, bits)
    return np.moveaxis(meaning(codes, minimum, scale).reshape(moved.shape), -1, axis)
