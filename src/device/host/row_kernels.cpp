#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/host/row_kernels.cpp"
#include <hwy/foreach_target.h>
// Must come after foreach_target.h.
#include <hwy/cache_control.h>

#include <cmath>

#include "device/host/kernels.hpp"
#include "device/host/lanes-inl.hpp"
#include "device/host/packed-inl.hpp"

#if STAGECOACH_KERNEL_TARGET
HWY_BEFORE_NAMESPACE();
namespace stagecoach::device {
namespace HWY_NAMESPACE {
namespace {

float mean_of(const float* x, std::int64_t width) {
  Lanes sum = set_lanes(0.0f);
  std::int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    sum = add(sum, load_lanes(x + i));
  }
  if (i < width) {
    sum = add(sum, load_lanes_partly(x + i, width - i));
  }
  return fold(sum) / static_cast<float>(width);
}

float mean_square_of_differences(const float* x, std::int64_t width, float mean) {
  const Lanes center = set_lanes(mean);
  Lanes sum = set_lanes(0.0f);
  std::int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const Lanes difference = subtract(load_lanes(x + i), center);
    sum = multiply_add(difference, difference, sum);
  }
  if (i < width) {
    float padded[kLanes] = {};  // zeros behind the last element, not minus the mean
    store_lanes_partly(subtract(load_lanes_partly(x + i, width - i), center), padded, width - i);
    const Lanes difference = load_lanes(padded);
    sum = multiply_add(difference, difference, sum);
  }
  return fold(sum) / static_cast<float>(width);
}

void layer_norm(const LayerNormArgs& args, std::int64_t row) {
  const float* x = args.x + row * args.width;
  float* out = args.out + row * args.width;
  const float mean = mean_of(x, args.width);
  const float variance = mean_square_of_differences(x, args.width, mean);
  const Lanes center = set_lanes(mean);
  const Lanes inverse = set_lanes(1.0f / std::sqrt(variance + args.epsilon));
  const auto normalize = [&](const Lanes& value, const Lanes& weight, const Lanes& bias) HWY_ATTR {
    return multiply_add(multiply(subtract(value, center), inverse), weight, bias);
  };
  std::int64_t i = 0;
  for (; i + kLanes <= args.width; i += kLanes) {
    store_lanes(
        normalize(load_lanes(x + i), load_lanes(args.weight + i), load_lanes(args.bias + i)),
        out + i);
  }
  if (const std::int64_t rest = args.width - i; rest > 0) {
    store_lanes_partly(
        normalize(load_lanes_partly(x + i, rest), load_lanes_partly(args.weight + i, rest),
                  load_lanes_partly(args.bias + i, rest)),
        out + i, rest);
  }
}

void add_halves(const Half* a, const Half* b, std::int64_t count, float* out) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_lanes(add(load_lanes(a + i), load_lanes(b + i)), out + i);
  }
  if (const std::int64_t rest = count - i; rest > 0) {
    store_lanes_partly(add(load_lanes_partly(a + i, rest), load_lanes_partly(b + i, rest)), out + i,
                       rest);
  }
}

// Numbers as they come, plus a row of halves.
struct SumWithHalves {
  const Half* b;
  float* out;

  HWY_INLINE void put(const Lanes& lanes, std::int64_t at) const {
    store_lanes(add(lanes, load_lanes(b + at)), out + at);
  }
  HWY_INLINE void put_partly(const Lanes& lanes, std::int64_t at, std::int64_t count) const {
    store_lanes_partly(add(lanes, load_lanes_partly(b + at, count)), out + at, count);
  }
};

void put_halves(const Lanes& lanes, std::int64_t count, Half* out) {
  Half whole[kLanes];
  store_lanes(lanes, whole);
  std::copy_n(whole, count, out);
}

struct Halves {
  Half* out;

  HWY_INLINE void put(const Lanes& lanes, std::int64_t at) const { store_lanes(lanes, out + at); }
  HWY_INLINE void put_partly(const Lanes& lanes, std::int64_t at, std::int64_t count) const {
    put_halves(lanes, count, out + at);
  }
};

// Past the caches: what is widened is used when all of it is. For an aligned `out`.
struct StreamedHalves {
  Half* out;

  HWY_INLINE void put(const Lanes& lanes, std::int64_t at) const {
    HWY_UNROLL(2)
    for (int i = 0; i < kRegisters; ++i) {
      hn::Stream(hn::DemoteTo(HalfTag(), lanes.r[i]), HalfTag(),
                 reinterpret_cast<hwy::float16_t*>(out + at + i * kRegister));
    }
  }
  HWY_INLINE void put_partly(const Lanes& lanes, std::int64_t at, std::int64_t count) const {
    put_halves(lanes, count, out + at);
  }
};

void add_packed(const PackedRun& run, const Half* b, float* out) {
  widen_run(run, SumWithHalves{b, out});
}
void widen_packed(const PackedRun& run, Half* out) {
  constexpr std::uintptr_t kLine = 64;
  if (reinterpret_cast<std::uintptr_t>(out) % kLine == 0) {
    widen_run(run, StreamedHalves{out});
    hwy::FlushStream();
  } else {
    widen_run(run, Halves{out});
  }
}

}  // namespace

const RowKernels& row_table() {
  static constexpr RowKernels kTable{layer_norm, add_halves, add_packed, widen_packed};
  return kTable;
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::device
HWY_AFTER_NAMESPACE();
#endif  // STAGECOACH_KERNEL_TARGET

#if HWY_ONCE
namespace stagecoach::device {

const RowKernels& row_kernels(Isa isa) {
  return isa == Isa::avx512 ? N_AVX3::row_table() : N_AVX2::row_table();
}

}  // namespace stagecoach::device
#endif
