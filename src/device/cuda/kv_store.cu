#include "device/cuda/kernel.cuh"
#include "device/cuda/kv_numbers.cuh"
#include "device/cuda/kv_store.hpp"
#include "device/cuda/launch.hpp"

namespace stagecoach::device::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kBlockCodes = 32;  // kCodeBlock, a lane each
constexpr unsigned kLeastNormalBits = 0x0400;
constexpr std::uint16_t kNotANumber = 0x7e00;

// base/half.hpp's to_half, NaN included.
__device__ std::uint16_t half_bits(float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned sign = (bits >> 16) & 0x8000u;
  const unsigned magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) {
    return static_cast<std::uint16_t>(sign | 0x7c00u);
  }
  if (magnitude < 0x38800000u) {
    const float rounded = __fadd_rn(__uint_as_float(magnitude), 0.5f);
    return static_cast<std::uint16_t>(sign | (__float_as_uint(rounded) - 0x3f000000u));
  }
  const unsigned odd = (magnitude >> 13) & 1u;
  return static_cast<std::uint16_t>(sign | ((magnitude + 0xfffu + odd - (112u << 23)) >> 13));
}

__device__ float half_value(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }

__device__ bool is_finite_half(std::uint16_t bits) { return (bits & 0x7c00u) != 0x7c00u; }
__device__ bool is_finite_float(float value) {
  return (__float_as_uint(value) & 0x7f800000u) != 0x7f800000u;
}

struct Params {
  std::uint16_t minimum;
  std::uint16_t scale;
};

// base/packing.cpp's scale_of: below f16's normal range up, a step down where the highest code
// would be infinite.
__device__ std::uint16_t scale_of(float minimum, float exact, float highest) {
  std::uint16_t scale = half_bits(exact);
  if (exact < half_value(kLeastNormalBits) && half_value(scale) < exact) {
    scale = exact < half_value(1) ? std::uint16_t{1} : static_cast<std::uint16_t>(scale + 1);
  }
  if (is_finite_half(scale)) {
    const auto most =
        static_cast<float>(static_cast<double>(highest) * half_value(scale) + minimum);
    if (!is_finite_half(half_bits(most))) {
      scale = static_cast<std::uint16_t>(scale - 1);
    }
  }
  return scale;
}

// base/packing.cpp's group_params, each operation rounded by itself.
__device__ Params group_params(float smallest, float largest, float highest) {
  smallest = __fadd_rn(smallest, 0.0f);
  largest = __fadd_rn(largest, 0.0f);
  const std::uint16_t minimum = half_bits(smallest);
  const float exact = __fdiv_rn(__fadd_rn(largest, -smallest), highest);
  const std::uint16_t scale = scale_of(half_value(minimum), exact, highest);
  if (!is_finite_half(minimum) || !is_finite_half(scale)) {
    return {kNotANumber, 0};
  }
  return {minimum, scale};
}

__device__ unsigned code_of(float value, float minimum, float scale, float highest) {
  const float code = __fdiv_rn(__fadd_rn(value, -minimum), scale);
  const float low = code > 0 ? code : 0.0f;
  const float cut = low < highest ? low : highest;
  return __float_as_uint(__fadd_rn(cut, 12582912.0f)) & 0xffu;  // 1.5 * 2^23
}

// Where a row's K or V is, and where it goes. Null page: nowhere.
struct StoreTarget {
  const float* from;
  std::byte* page;
  int slot;
};

__device__ StoreTarget store_target(const KvStore& store, const RowWork& work) {
  const SequenceWork sequence = store.sequences[work.sequence];
  const int position = sequence.first_position + work.row;
  const std::int64_t row = sequence.first_row + work.row;
  return {store.key + row * store.row_stride,
          store.pages[sequence.first_page + position / store.layout.page_tokens],
          position % store.layout.page_tokens};
}

// [rows, 2 * kv_heads, head_dim]: reads 4 bytes a number and writes 2 (f16) or 4. A block has a
// part of one row; a thread takes every blockDim-th number of it.
template <KvType Type>
__global__ void __launch_bounds__(kThreads) store_dense(KvStore store) {
  const StoreTarget target = store_target(store, store.rows[blockIdx.x]);
  if (target.page == nullptr) {
    return;
  }
  const int head_dim = store.layout.head_dim;
  const int half = store.layout.kv_heads * head_dim;
  const std::int64_t to_value = store.value - store.key;
  const int stride = static_cast<int>(gridDim.y) * kThreads;
  for (int i = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
       i < 2 * half; i += stride) {
    const float number = i < half ? target.from[i] : target.from[to_value + i - half];
    std::byte* head = target.page + i / head_dim * store.layout.head_bytes;
    const std::int64_t at = static_cast<std::int64_t>(target.slot) * head_dim + i % head_dim;
    if constexpr (Type == KvType::f16) {
      reinterpret_cast<std::uint16_t*>(head)[at] = half_bits(number);
    } else {
      reinterpret_cast<float*>(head)[at] = number;
    }
  }
}

struct Range {
  float smallest;
  float largest;
  bool finite;
};

__device__ Range range_of(const float* from, int size, int lane) {
  Range range{from[0], from[0], true};
  for (int i = lane; i < size; i += kWarpThreads) {
    const float value = from[i];
    range.smallest = value < range.smallest ? value : range.smallest;
    range.largest = value > range.largest ? value : range.largest;
    range.finite = range.finite && is_finite_float(value);
  }
#pragma unroll
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    const float smallest = __shfl_xor_sync(kWholeWarp, range.smallest, step);
    const float largest = __shfl_xor_sync(kWholeWarp, range.largest, step);
    range.smallest = smallest < range.smallest ? smallest : range.smallest;
    range.largest = largest > range.largest ? largest : range.largest;
    range.finite = (__shfl_xor_sync(kWholeWarp, range.finite ? 1 : 0, step) != 0) && range.finite;
  }
  return range;
}

// [rows, 2 * kv_heads, groups]: a warp packs one group. Reads 4 bytes a number (twice, the second
// time from the cache), writes 1 or 1/2 and 4 a group.
template <KvType Type>
__global__ void __launch_bounds__(kThreads) store_packed(KvStore store) {
  constexpr float kHighest = Type == KvType::int4 ? 15.0f : 255.0f;
  const KvLayout& layout = store.layout;
  const StoreTarget target = store_target(store, store.rows[blockIdx.x]);
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int item = static_cast<int>(blockIdx.y) * (kThreads / kWarpThreads) +
                   static_cast<int>(threadIdx.x) / kWarpThreads;
  const int head = item / layout.groups;
  if (target.page == nullptr || head >= 2 * layout.kv_heads) {
    return;  // a whole warp
  }
  const int group = item % layout.groups;
  const int first = group * layout.group;
  const int size = min(layout.group, layout.head_dim - first);
  const float* from = (head < layout.kv_heads ? target.from + head * layout.head_dim
                                              : target.from + (store.value - store.key) +
                                                    (head - layout.kv_heads) * layout.head_dim) +
                      first;
  const Range range = range_of(from, size, lane);
  Params params{kNotANumber, 0};
  if (range.finite) {
    params = group_params(range.smallest, range.largest, kHighest);
  }
  std::byte* const data = target.page + head * layout.head_bytes;
  if (lane == 0) {
    auto* to = reinterpret_cast<std::uint16_t*>(data) + 2 * (target.slot * layout.groups + group);
    to[0] = params.minimum;
    to[1] = params.scale;
  }
  const float minimum = half_value(params.minimum);
  const float scale = half_value(params.scale);
  std::byte* codes = data + 4 * layout.groups * layout.page_tokens +
                     static_cast<std::int64_t>(target.slot) * layout.code_bytes +
                     (Type == KvType::int4 ? first / 2 : first);
  for (int block = 0; block < size; block += kBlockCodes) {
    const int i = block + lane;
    const bool coded = params.scale != 0 && i < size;
    const unsigned code = coded ? code_of(from[i], minimum, scale, kHighest) : 0u;
    if constexpr (Type == KvType::int4) {
      const unsigned upper = __shfl_down_sync(kWholeWarp, code, kBlockCodes / 2);
      if (lane < kBlockCodes / 2) {
        codes[block / 2 + lane] = static_cast<std::byte>(code | (upper << 4));
      }
    } else {
      codes[i] = static_cast<std::byte>(code);
    }
  }
}

}  // namespace

void launch_kv_store(cudaStream_t stream, const KvStore& store) {
  const auto rows = static_cast<unsigned>(store.num_rows);
  const auto& layout = store.layout;
  const auto packed_blocks = static_cast<unsigned>((2 * layout.kv_heads * layout.groups + 3) / 4);
  const auto dense_blocks = static_cast<unsigned>(
      (2 * layout.kv_heads * layout.head_dim + 8 * kThreads - 1) / (8 * kThreads));
  switch (layout.type) {
    case KvType::f16:
      return launch(stream, "store keys and values", {{rows, dense_blocks}, kThreads},
                    store_dense<KvType::f16>, store);
    case KvType::f32:
      return launch(stream, "store keys and values", {{rows, dense_blocks}, kThreads},
                    store_dense<KvType::f32>, store);
    case KvType::int8:
      return launch(stream, "store keys and values", {{rows, packed_blocks}, kThreads},
                    store_packed<KvType::int8>, store);
    case KvType::int4:
      return launch(stream, "store keys and values", {{rows, packed_blocks}, kThreads},
                    store_packed<KvType::int4>, store);
  }
}

}  // namespace stagecoach::device::cuda
