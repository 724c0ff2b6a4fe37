#pragma once

#include <cublas_v2.h>

#include <cstdint>
#include <string>

#include "device/cuda/operation.hpp"
#include "device/cuda/packed_product_rows.hpp"
#include "device/device.hpp"

namespace stagecoach::device::cuda {

/// Device::linear. x is rounded to f16 (beyond its range: to the largest f16), sums are f32. f16
/// weights go to cuBLAS, at most 512 rows at a time, with a workspace of 32 MiB that is part of the
/// operation's scratch, so a product of given shapes repeats its bits; a row's bits may differ with
/// the number of rows. Packed weights go to a kernel of our own, whose rows have one order of sums.
class Products {
 public:
  /// Of the current device. CudaError if cuBLAS refuses.
  Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
  Products(Products&&) = delete;
  Products& operator=(Products&&) = delete;
  ~Products();

  void linear(Operation& operation, const LinearArgs& args);

  /// "cuBLAS 13.1.0"
  [[nodiscard]] static std::string version();

 private:
  cublasHandle_t handle_ = nullptr;
};

}  // namespace stagecoach::device::cuda
