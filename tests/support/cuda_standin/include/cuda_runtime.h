#pragma once

// What device code is written with, and launching it. Every thread of a block is a fiber of the
// stream's thread; only collectives switch between them.

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_runtime_api.h"
#include "vector_types.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define __align__(bytes) alignas(bytes)
#define __restrict__ __restrict

extern thread_local constinit uint3 threadIdx;
extern thread_local constinit uint3 blockIdx;
extern thread_local constinit dim3 blockDim;
extern thread_local constinit dim3 gridDim;
inline constexpr int warpSize = 32;

namespace cuda_standin {

/// What a warp does together.
enum class WarpOperation { synchronise, shuffle, vote, multiply_tiles };

/// Takes part in a collective of the lanes of `mask`: waits until all of them that have not left
/// the kernel have come, and gives what the operation gives this lane. `value` is the lane's;
/// `source` is the lane a shuffle reads, and poison comes from one that has left or is not in the
/// mask. A kernel that can never go on fails.
std::uint64_t warp_collective(WarpOperation operation, unsigned mask, std::uint64_t value,
                              int source);
void block_barrier();
int lane();

/// Enqueues the grid; `body` runs once for each thread of it.
cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> body);

template <typename T>
T shuffle(unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp_collective(WarpOperation::shuffle, mask, bits, source);
  std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

/// A shuffle's source within sections of `width` lanes: the own lane where `source` leaves them.
inline int within(int source, int width) {
  const int self = lane();
  const int first = self / width * width;
  return source >= first && source < first + width ? source : self;
}

}  // namespace cuda_standin

inline void __syncthreads() { cuda_standin::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  cuda_standin::warp_collective(cuda_standin::WarpOperation::synchronise, mask, 0, 0);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  const int first = cuda_standin::lane() / width * width;
  return cuda_standin::shuffle(mask, value, first + (source & (width - 1)));
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int source = cuda_standin::lane() + static_cast<int>(delta);
  return cuda_standin::shuffle(mask, value, cuda_standin::within(source, width));
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int source = cuda_standin::lane() - static_cast<int>(delta);
  return cuda_standin::shuffle(mask, value, cuda_standin::within(source, width));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize) {
  // As on a GPU, only a source beyond the section's end is refused.
  const int source = cuda_standin::lane() ^ lanes;
  const int end = cuda_standin::lane() / width * width + width;
  return cuda_standin::shuffle(mask, value, source < end ? source : cuda_standin::lane());
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(cuda_standin::warp_collective(cuda_standin::WarpOperation::vote,
                                                             mask, predicate != 0 ? 1 : 0, 0));
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate == 0 ? 1 : 0) == 0 ? 1 : 0;
}

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

template <typename T>
T __ldg(const T* item) {
  return *item;
}

// Another stream's grid may touch the same memory, so these are atomic among threads.
template <typename T, typename Combine>
T cuda_standin_atomic(T* item, const Combine& combine) {
  static_assert(std::is_integral_v<T>);
  T seen = __atomic_load_n(item, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(item, &seen, combine(seen), true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return seen;
}
template <typename T>
T atomicAdd(T* item, std::type_identity_t<T> value) {
  return cuda_standin_atomic(item, [&](T seen) { return static_cast<T>(seen + value); });
}
template <typename T>
T atomicMax(T* item, std::type_identity_t<T> value) {
  return cuda_standin_atomic(item, [&](T seen) { return seen < value ? value : seen; });
}
template <typename T>
T atomicMin(T* item, std::type_identity_t<T> value) {
  return cuda_standin_atomic(item, [&](T seen) { return value < seen ? value : seen; });
}
template <typename T>
T atomicOr(T* item, std::type_identity_t<T> value) {
  return cuda_standin_atomic(item, [&](T seen) { return static_cast<T>(seen | value); });
}
template <typename T>
T atomicExch(T* item, std::type_identity_t<T> value) {
  return cuda_standin_atomic(item, [&](T) { return value; });
}
template <typename T>
T atomicCAS(T* item, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return cuda_standin_atomic(item, [&](T seen) { return seen == expected ? value : seen; });
}

template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  static_assert(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>);
  using T = std::common_type_t<A, B>;
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  static_assert(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>);
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((std::uint64_t{a} * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(a) * b) >> 64);
}

template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  std::tuple<std::decay_t<Params>...> copies{static_cast<Params>(std::forward<Args>(args))...};
  return cuda_standin::launch(*config, reinterpret_cast<const void*>(kernel),
                              [kernel, copies] { std::apply(kernel, copies); });
}

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
