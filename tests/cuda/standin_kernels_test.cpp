#include <cublas_v2.h>
#include <mma.h>

#include <cmath>
#include <dynamic_shared.hpp>
#include <random>

#include "base/half.hpp"
#include "cuda/standin_case.hpp"

namespace stagecoach::test {
namespace {

constexpr unsigned kWhole = 0xffffffffu;

__global__ void who_am_i(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
      blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z + 1000 * threadIdx.x + 10000 * threadIdx.y +
      100000 * threadIdx.z;
}

TEST(StandinFibers, KnowTheirPlaces) {
  StandinCase on;
  auto* const out = on.device<unsigned>(2 * 3 * 2 * 4 * 3 * 2);
  EXPECT_CUDA(on.launch(nullptr, dim3(2, 3, 2), dim3(4, 3, 2), 0, who_am_i, out));
  const auto all = on.get(out, 2 * 3 * 2 * 4 * 3 * 2);
  std::size_t at = 0;
  for (unsigned block = 0; block < 12; ++block) {
    for (unsigned thread = 0; thread < 24; ++thread) {
      const unsigned expected = block % 2 + 10 * (block / 2 % 3) + 100 * (block / 6) +
                                1000 * (thread % 4) + 10000 * (thread / 4 % 3) +
                                100000 * (thread / 12);
      ASSERT_EQ(all[at++], expected);
    }
  }
}

// Each block turns its part round, by way of shared memory.
template <bool Waits>
__global__ void reverse(const int* from, int* to) {
  __shared__ int items[100];
  auto* const more = static_cast<int*>(cuda_standin::dynamic_shared_bytes());
  const unsigned base = blockIdx.x * blockDim.x;
  items[threadIdx.x] = from[base + threadIdx.x];
  more[threadIdx.x] = from[base + threadIdx.x];
  if (Waits) {
    __syncthreads();
  }
  const unsigned other = blockDim.x - 1 - threadIdx.x;
  to[base + threadIdx.x] = items[other] + more[other];
}

TEST(StandinFibers, MeetAtBarriers) {
  for (const std::uint64_t seed : {0, 1, 2, 3, 4}) {  // also with the last thread first
    StandinCase on({.adversary_seed = seed});
    std::vector<int> numbers(300);
    for (int i = 0; i < 300; ++i) {
      numbers[static_cast<std::size_t>(i)] = i;
    }
    auto* const from = on.put(numbers);
    auto* const to = on.device<int>(300);
    EXPECT_CUDA(on.launch(nullptr, dim3(3), dim3(100), 400, reverse<true>, from, to));
    const auto turned = on.get(to, 300);
    for (int i = 0; i < 300; ++i) {
      ASSERT_EQ(turned[static_cast<std::size_t>(i)], 2 * (i / 100 * 100 + 99 - i % 100));
    }
    EXPECT_CUDA(on.launch(nullptr, dim3(3), dim3(100), 400, reverse<false>, from, to));
    EXPECT_NE(on.get(to, 300), turned);
  }
}

__global__ void shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int* const own = out + lane * 10;
  own[0] = __shfl_sync(kWhole, lane * 3, 5);
  own[1] = __shfl_sync(kWhole, lane, lane + 3, 8);
  own[2] = __shfl_down_sync(kWhole, lane, 3);
  own[3] = __shfl_up_sync(kWhole, lane, 3, 16);
  own[4] = __shfl_xor_sync(kWhole, lane, 5);
  own[5] = static_cast<int>(__ballot_sync(kWhole, lane % 3 == 0));
  own[6] = __any_sync(kWhole, lane == 31) + 2 * __any_sync(kWhole, lane == 32);
  own[7] = __all_sync(kWhole, lane < 32) + 2 * __all_sync(kWhole, lane < 31);
  own[8] = static_cast<int>(__shfl_sync(kWhole, 1.5 * lane, 2));
  const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;  // two groups that do not meet
  own[9] = __shfl_xor_sync(half, lane, lane < 16 ? 1 : 2, 16);
}

TEST(StandinFibers, ShuffleAndVote) {
  StandinCase on;
  auto* const out = on.device<int>(320);
  EXPECT_CUDA(on.launch(nullptr, dim3(1), dim3(32), 0, shuffles, out));
  const auto all = on.get(out, 320);
  for (int lane = 0; lane < 32; ++lane) {
    const int* const own = all.data() + lane * 10;
    EXPECT_EQ(own[0], 15);
    EXPECT_EQ(own[1], lane / 8 * 8 + (lane + 3) % 8);
    EXPECT_EQ(own[2], lane + 3 < 32 ? lane + 3 : lane);
    EXPECT_EQ(own[3], lane % 16 >= 3 ? lane - 3 : lane);
    EXPECT_EQ(own[4], lane ^ 5);
    EXPECT_EQ(static_cast<unsigned>(own[5]), 0x49249249u);
    EXPECT_EQ(own[6], 1);
    EXPECT_EQ(own[7], 1);
    EXPECT_EQ(own[8], 3);
    EXPECT_EQ(own[9], lane < 16 ? lane ^ 1 : lane ^ 2);
  }
}

__global__ void read_of_a_lane_that_left(unsigned* out) {
  if (threadIdx.x == 7) {
    return;
  }
  out[threadIdx.x] = __shfl_sync(kWhole, threadIdx.x, 7);
}

TEST(StandinFibers, GetPoisonOfALaneThatHasLeft) {
  StandinCase on;
  auto* const out = on.device<unsigned>(32);
  EXPECT_CUDA(on.launch(nullptr, dim3(1), dim3(32), 0, read_of_a_lane_that_left, out));
  EXPECT_EQ(on.get(out, 32)[0], 0xffffffffu);
}

__global__ void half_at_the_barrier() {
  if (threadIdx.x < 32) {
    __syncthreads();
    __syncthreads();
  } else {
    __shfl_sync(kWhole, 1, 0);
    if (threadIdx.x == 40) {
      __shfl_sync(kWhole, 1, 0);
    }
    __syncthreads();
  }
}
__global__ void different_collectives() {
  if (threadIdx.x == 3) {
    __ballot_sync(kWhole, 1);
  } else {
    __shfl_sync(kWhole, 1, 0);
  }
}
__global__ void not_in_its_mask() { __shfl_sync(0xfu, 1, 0); }
__global__ void throws() { throw std::runtime_error("out of range"); }
__global__ void tiles_with_half_a_warp() {
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> a{};
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::row_major> b{};
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> c{};
  nvcuda::wmma::mma_sync(c, a, b, c);
}

void expect_failure(void (*kernel)(), unsigned threads, const std::string& text) {
  StandinCase on;
  auto* const stream = on.stream();
  auto* const event = on.event();
  EXPECT_CUDA(on.launch(stream, dim3(2), dim3(threads), 0, kernel));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  EXPECT_NE(cuda_standin::failure().find(text), std::string::npos) << cuda_standin::failure();
  EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorLaunchFailure);
}

TEST(StandinFibers, FailWhereAGpuWouldHang) {
  expect_failure(half_at_the_barrier, 64, "wait for each other for ever");
  expect_failure(different_collectives, 32, "different collectives");
  expect_failure(not_in_its_mask, 32, "missing from the mask");
  expect_failure(throws, 32, "out of range");
  expect_failure(tiles_with_half_a_warp, 16, "without the whole warp");
}

__global__ void count_up(int* counters) {
  atomicAdd(&counters[0], 2);
  atomicMax(&counters[1], static_cast<int>(threadIdx.x));
  atomicMin(&counters[2], -static_cast<int>(blockIdx.x));
  if (atomicCAS(&counters[3], 0, static_cast<int>(threadIdx.x) + 1) == 0) {
    atomicAdd(&counters[4], 1);
  }
}

TEST(StandinFibers, AddAtomically) {
  StandinCase on;
  auto* const first = on.stream();
  auto* const second = on.stream();
  auto* const counters = on.put(std::vector<int>(5, 0));
  for (int i = 0; i < 10; ++i) {
    for (auto* const stream : {first, second}) {
      EXPECT_CUDA(on.launch(stream, dim3(5), dim3(100), 0, count_up, counters));
    }
  }
  EXPECT_CUDA(cudaDeviceSynchronize());
  const auto all = on.get(counters, 5);
  EXPECT_EQ(all[0], 2 * 2 * 10 * 500);
  EXPECT_EQ(all[1], 99);
  EXPECT_EQ(all[2], -4);
  EXPECT_EQ(all[4], 1);
}

TEST(StandinHalf, WidensAllValuesExactly) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto narrow = static_cast<std::uint16_t>(bits);
    const float expected = to_float(Half{narrow});
    const float widened = __half2float(__ushort_as_half(narrow));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(widened), std::bit_cast<std::uint32_t>(expected))
        << bits;
  }
}

void expect_same_rounding(float value) {
  const std::uint16_t narrow = __half_as_ushort(__float2half_rn(value));
  if (std::isnan(value)) {
    ASSERT_EQ(narrow, 0x7fff);
  } else {
    ASSERT_EQ(narrow, to_half(value).bits) << value;
  }
}

TEST(StandinHalf, RoundsToNearest) {
  // Each value, the middles between neighbours, and the floats next to those.
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float value = to_float(Half{static_cast<std::uint16_t>(bits)});
    const float next =
        bits == 0x7bff ? 65536.0f : to_float(Half{static_cast<std::uint16_t>(bits + 1)});
    const float middle = (value + next) / 2;
    for (const float sign : {1.0f, -1.0f}) {
      expect_same_rounding(sign * value);
      expect_same_rounding(sign * middle);
      expect_same_rounding(sign * std::nextafter(middle, 0.0f));
      expect_same_rounding(sign * std::nextafter(middle, INFINITY));
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 1000000; ++i) {
    expect_same_rounding(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
}

namespace wmma = nvcuda::wmma;

template <typename LayoutA, typename LayoutB>
__global__ void tiles(const half* a, const half* b, const float* c, float* d, unsigned stride,
                      wmma::layout_t layout) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, LayoutA> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, LayoutB> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> result;
  wmma::load_matrix_sync(left, a, stride);
  wmma::load_matrix_sync(right, b, stride);
  wmma::load_matrix_sync(sum, c, stride, layout);
  wmma::fill_fragment(result, 100.0f);
  wmma::mma_sync(result, left, right, sum);
  for (float& item : result.x) {
    item *= 2.0f;
  }
  wmma::store_matrix_sync(d, result, stride, layout);
}

// Small whole numbers, so that the order of the sums does not matter.
template <typename T>
std::vector<T> whole_numbers(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<T> items(count);
  for (T& item : items) {
    const auto number = static_cast<float>(static_cast<int>(random() % 9) - 4);
    if constexpr (std::is_same_v<T, half>) {
      item = __float2half(number);
    } else {
      item = number;
    }
  }
  return items;
}

template <typename LayoutA, typename LayoutB>
void check_tiles(wmma::layout_t layout) {
  constexpr std::size_t kStride = 24;
  StandinCase on;
  const auto a = whole_numbers<half>(16 * kStride, 1);
  const auto b = whole_numbers<half>(16 * kStride, 2);
  const auto c = whole_numbers<float>(16 * kStride, 3);
  auto* const d = on.device<float>(16 * kStride);
  EXPECT_CUDA(on.launch(nullptr, dim3(1), dim3(32), 0, tiles<LayoutA, LayoutB>, on.put(a),
                        on.put(b), on.put(c), d, kStride, layout));
  const auto result = on.get(d, 16 * kStride);
  const auto at = [](bool by_rows, std::size_t row, std::size_t column) {
    return by_rows ? row * kStride + column : column * kStride + row;
  };
  const bool c_rows = layout == wmma::mem_row_major;
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 16; ++column) {
      float expected = c[at(c_rows, row, column)];
      for (std::size_t k = 0; k < 16; ++k) {
        expected += __half2float(a[at(std::is_same_v<LayoutA, wmma::row_major>, row, k)]) *
                    __half2float(b[at(std::is_same_v<LayoutB, wmma::row_major>, k, column)]);
      }
      ASSERT_EQ(result[at(c_rows, row, column)], 2 * expected) << row << " " << column;
    }
  }
}

TEST(StandinTiles, AreMultiplied) {
  check_tiles<wmma::row_major, wmma::row_major>(wmma::mem_row_major);
  check_tiles<wmma::row_major, wmma::col_major>(wmma::mem_row_major);
  check_tiles<wmma::col_major, wmma::row_major>(wmma::mem_col_major);
  check_tiles<wmma::col_major, wmma::col_major>(wmma::mem_col_major);
}

struct GemmShape {
  int m, n, k, more;
};

void check_gemm(cublasOperation_t op_a, cublasOperation_t op_b, GemmShape shape, float beta) {
  StandinCase on;
  const auto [m, n, k, more] = shape;
  const bool ta = op_a == CUBLAS_OP_T;
  const bool tb = op_b == CUBLAS_OP_T;
  const int lda = (ta ? k : m) + more;
  const int ldb = (tb ? n : k) + more;
  const int ldc = m + more;
  const auto size = [](int rows, int columns) { return static_cast<std::size_t>(rows * columns); };
  const auto a = whole_numbers<half>(size(lda, ta ? m : k), 4);
  const auto b = whole_numbers<half>(size(ldb, tb ? k : n), 5);
  const auto c =
      beta == 0 ? std::vector<float>(size(ldc, n), NAN) : whole_numbers<float>(size(ldc, n), 6);
  auto* const d = on.put(c);
  cublasHandle_t handle = nullptr;
  ASSERT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  const float alpha = 0.5f;
  ASSERT_EQ(cublasGemmEx(handle, op_a, op_b, m, n, k, &alpha, on.put(a), CUDA_R_16F, lda, on.put(b),
                         CUDA_R_16F, ldb, &beta, d, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
  const auto result = on.get(d, c.size());
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      float sum = 0;
      for (int i = 0; i < k; ++i) {
        sum += __half2float(a[size(1, ta ? row * lda + i : i * lda + row)]) *
               __half2float(b[size(1, tb ? i * ldb + column : column * ldb + i)]);
      }
      const auto at = size(1, column * ldc + row);
      ASSERT_EQ(result[at], alpha * sum + (beta == 0 ? 0 : beta * c[at])) << row << " " << column;
    }
  }
}

TEST(StandinGemm, IsThatOfPlainLoops) {
  for (const auto op_a : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    for (const auto op_b : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      check_gemm(op_a, op_b, {1, 1, 1, 0}, 0);
      check_gemm(op_a, op_b, {37, 11, 70, 3}, 0);
      check_gemm(op_a, op_b, {5, 33, 129, 0}, 2);
    }
  }
}

TEST(StandinGemm, RefusesWhatCublasDoes) {
  StandinCase on;
  auto* const x = on.device<half>(100);
  auto* const y = on.device<float>(100);
  cublasHandle_t handle = nullptr;
  ASSERT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  const float one = 1;
  const auto gemm = [&](int lda, cudaDataType type, int n) {
    return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 10, n, 10, &one, x, type, lda, x,
                        CUDA_R_16F, 10, &one, y, CUDA_R_32F, 10, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT);
  };
  EXPECT_EQ(gemm(10, CUDA_R_16F, 10), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(gemm(9, CUDA_R_16F, 10), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(gemm(10, CUDA_R_32F, 10), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(gemm(10, CUDA_R_16F, 11), CUBLAS_STATUS_EXECUTION_FAILED);  // beyond the memory
  EXPECT_EQ(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace stagecoach::test
