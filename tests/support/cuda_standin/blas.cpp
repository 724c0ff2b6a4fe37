#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <immintrin.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "support/cuda_standin/calls.hpp"
#include "support/cuda_standin/engine.hpp"
#include "support/cuda_standin/memory.hpp"
#include "support/cuda_standin/streams.hpp"

struct cublasContext {
  std::shared_ptr<cuda_standin::StreamState> stream;
  int device = 0;
};

namespace cuda_standin {
namespace {

constexpr int kVersion = 130002;

// A column-major matrix op(stored)[rows, columns].
struct Factor {
  const __half* data = nullptr;
  std::size_t leading = 0;
  bool transposed = false;
};

struct Product {
  std::size_t m = 0, n = 0, k = 0;
  float alpha = 0, beta = 0;
  Factor a, b;
  float* c = nullptr;
  std::size_t ldc = 0;
};

// Widens count items that lie `stride` apart.
void widen(const __half* from, std::size_t stride, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = __half2float(from[i * stride]);
  }
}

__attribute__((target("avx2,f16c"))) void widen_fast(const __half* from, std::size_t count,
                                                     float* to) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const auto bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(bits));
  }
  widen(from + i, 1, count - i, to + i);
}

float dot(const float* a, const float* b, std::size_t count) {
  float sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

__attribute__((target("avx2,fma"))) float dot_fast(const float* a, const float* b,
                                                   std::size_t count) {
  __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                    _mm256_setzero_ps()};
  std::size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    for (std::size_t part = 0; part < 4; ++part) {
      const std::size_t at = i + part * 8;
      sums[part] = _mm256_fmadd_ps(_mm256_loadu_ps(a + at), _mm256_loadu_ps(b + at), sums[part]);
    }
  }
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes,
                  _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
  float sum = dot(a + i, b + i, count - i);
  for (const float lane : lanes) {
    sum += lane;
  }
  return sum;
}

bool fast() {
  static const bool yes = __builtin_cpu_supports("avx2") != 0 &&
                          __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports("f16c") != 0;
  return yes;
}

// The k items of row i of op(A), or of column i of op(B): op(B)'s columns are rows of op(B)^T.
void take(const Factor& factor, bool contiguous, std::size_t i, std::size_t k, float* to) {
  if (!contiguous) {
    widen(factor.data + i, factor.leading, k, to);
  } else if (fast()) {
    widen_fast(factor.data + i * factor.leading, k, to);
  } else {
    widen(factor.data + i * factor.leading, 1, k, to);
  }
}

void multiply(const Product& product) {
  const std::size_t k = product.k;
  std::vector<float> columns(product.n * k);
  for (std::size_t j = 0; j < product.n; ++j) {
    take(product.b, !product.b.transposed, j, k, columns.data() + j * k);
  }
  std::vector<float> row(k);
  for (std::size_t i = 0; i < product.m; ++i) {
    take(product.a, product.a.transposed, i, k, row.data());
    for (std::size_t j = 0; j < product.n; ++j) {
      const float* const column = columns.data() + j * k;
      const float sum = fast() ? dot_fast(row.data(), column, k) : dot(row.data(), column, k);
      float& c = product.c[j * product.ldc + i];
      // With beta 0, C is not read: it may be anything, NaN too.
      c = product.beta == 0 ? product.alpha * sum : product.alpha * sum + product.beta * c;
    }
  }
}

cublasStatus_t begin_blas(const char* name, cublasHandle_t handle) {
  if (begin_call(name) != cudaSuccess) {
    return CUBLAS_STATUS_INTERNAL_ERROR;
  }
  return handle == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_SUCCESS;
}

bool in_device(const void* data, std::size_t items, std::size_t item_bytes) {
  return Memory::get().place(data, items * item_bytes) == Memory::Place::device;
}

// Items from the first to the last of a column-major matrix.
std::size_t extent(std::size_t leading, std::size_t rows, std::size_t columns) {
  return (columns - 1) * leading + rows;
}

}  // namespace
}  // namespace cuda_standin

using cuda_standin::begin_blas;

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  if (cuda_standin::begin_call("cublasCreate") != cudaSuccess) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  *handle = new cublasContext{nullptr, cuda_standin::current_device()};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  const cublasStatus_t status = begin_blas("cublasDestroy", handle);
  delete handle;
  return status;
}

cublasStatus_t cublasGetVersion(cublasHandle_t handle, int* version) {
  *version = cuda_standin::kVersion;
  // As in cuBLAS no handle is needed.
  const cublasStatus_t status = begin_blas("cublasGetVersion", handle);
  return status == CUBLAS_STATUS_NOT_INITIALIZED ? CUBLAS_STATUS_SUCCESS : status;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  if (const auto status = begin_blas("cublasSetStream", handle); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  handle->stream = cuda_standin::stream_of(stream);
  return handle->stream != nullptr ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, std::size_t size_bytes) {
  if (const auto status = begin_blas("cublasSetWorkspace", handle);
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (size_bytes > 0 && (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0 ||
                         !cuda_standin::in_device(workspace, size_bytes, 1))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t) {
  return begin_blas("cublasSetMathMode", handle);
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t) {
  return begin_blas("cublasSetAtomicsMode", handle);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void* alpha, const void* a,
                            cudaDataType type_a, int lda, const void* b, cudaDataType type_b,
                            int ldb, const void* beta, void* c, cudaDataType type_c, int ldc,
                            cublasComputeType_t, cublasGemmAlgo_t) {
  if (const auto status = begin_blas("cublasGemmEx", handle); status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (type_a != CUDA_R_16F || type_b != CUDA_R_16F || type_c != CUDA_R_32F) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool transposed_a = op_a != CUBLAS_OP_N;
  const bool transposed_b = op_b != CUBLAS_OP_N;
  if (m < 0 || n < 0 || k < 0 || lda < std::max(1, transposed_a ? k : m) ||
      ldb < std::max(1, transposed_b ? n : k) || ldc < std::max(1, m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (m == 0 || n == 0) {
    return CUBLAS_STATUS_SUCCESS;
  }
  const auto size = [](int count) { return static_cast<std::size_t>(count); };
  cuda_standin::Product product;
  product.m = size(m);
  product.n = size(n);
  product.k = size(k);
  product.alpha = *static_cast<const float*>(alpha);
  product.beta = *static_cast<const float*>(beta);
  product.a = {static_cast<const __half*>(a), size(lda), transposed_a};
  product.b = {static_cast<const __half*>(b), size(ldb), transposed_b};
  product.c = static_cast<float*>(c);
  product.ldc = size(ldc);
  using cuda_standin::extent;
  using cuda_standin::in_device;
  const std::size_t items_a = transposed_a ? extent(product.a.leading, product.k, product.m)
                                           : extent(product.a.leading, product.m, product.k);
  const std::size_t items_b = transposed_b ? extent(product.b.leading, product.n, product.k)
                                           : extent(product.b.leading, product.k, product.n);
  if ((k > 0 && (!in_device(a, items_a, 2) || !in_device(b, items_b, 2))) ||
      !in_device(c, extent(product.ldc, product.m, product.n), sizeof(float))) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  const auto stream = handle->stream != nullptr ? handle->stream : cuda_standin::stream_of(nullptr);
  const cudaError_t error = cuda_standin::Engine::get().submit(stream, [product] {
    cuda_standin::multiply(product);
    return true;
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an invalid value was used as an argument";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "an absent device architectural feature is required";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "an access to GPU memory space failed";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality is not supported";
  }
  return "unknown status";
}
