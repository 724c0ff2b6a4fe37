#include "device/cuda/products.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "device/cuda/packed_kernels.hpp"
#include "device/cuda/row_kernels.hpp"

namespace stagecoach::device::cuda {
namespace {

void check_cublas(cublasStatus_t status, const char* action) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw CudaError(fmt::format("cuBLAS could not {}: {} (status {})", action,
                                cublasGetStatusString(status), static_cast<int>(status)));
  }
}

/// The same product with `count` rows of it from `first` on.
LinearArgs rows_of(LinearArgs args, std::int64_t first, std::int64_t count) {
  args.x += first * args.in_features;
  args.out += first * args.out_stride;
  args.rows = count;
  return args;
}

/// out = x W^T, or out += x W^T. cuBLAS counts by columns: to it out is [out_features, rows], the
/// weight and x are both [in_features, ...], and the weight is transposed.
void multiply(cublasHandle_t handle, const LinearArgs& args, const Half* x) {
  const float one = 1;
  const float kept = args.epilogue == Epilogue::add_to_out ? 1 : 0;
  const auto in = static_cast<int>(args.in_features);
  check_cublas(
      cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(args.out_features),
                   static_cast<int>(args.rows), in, &one, args.weight.halves(), CUDA_R_16F, in, x,
                   CUDA_R_16F, in, &kept, args.out, CUDA_R_32F, static_cast<int>(args.out_stride),
                   CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
      "multiply");
}

void packed_linear(Operation& operation, const LinearArgs& args) {
  for (std::int64_t first = 0; first < args.rows; first += kPackedProductRows) {
    launch_packed_product(operation.stream(),
                          rows_of(args, first, std::min(kPackedProductRows, args.rows - first)));
  }
}

}  // namespace

Products::Products() { check_cublas(cublasCreate(&handle_), "start"); }

Products::~Products() {
  if (handle_ != nullptr) {
    cublasDestroy(handle_);
  }
}

void Products::linear(Operation& operation, const LinearArgs& args) {
  if (args.weight.format.packed()) {
    packed_linear(operation, args);
    return;
  }
  if (args.rows == 0) {
    return;
  }
  constexpr std::int64_t kLargest = std::numeric_limits<int>::max();
  STAGECOACH_CHECK(args.in_features <= kLargest && args.out_stride <= kLargest,
                   "a product of {} in and {} out: too large for cuBLAS", args.in_features,
                   args.out_stride);
  // The workspace comes second: a new stream takes cuBLAS back to its own.
  check_cublas(cublasSetStream(handle_, operation.stream()), "take a stream");
  check_cublas(cublasSetWorkspace(handle_, operation.scratch(), kProductWorkspaceBytes),
               "take a workspace");
  auto* const x = reinterpret_cast<Half*>(operation.scratch() + kProductWorkspaceBytes);
  for (std::int64_t first = 0; first < args.rows; first += kProductPieceRows) {
    const auto piece = rows_of(args, first, std::min(kProductPieceRows, args.rows - first));
    launch_round(operation.stream(), piece.x, x, piece.rows * piece.in_features);
    multiply(handle_, piece, x);
  }
  launch_epilogue(operation.stream(), args);
}

std::string Products::version() {
  int number = 0;
  cublasHandle_t none = nullptr;
  check_cublas(cublasGetVersion(none, &number), "tell its version");
  return fmt::format("cuBLAS {}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

}  // namespace stagecoach::device::cuda
