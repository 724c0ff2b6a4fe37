#include "support/cuda_standin/standin.hpp"

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

namespace {

__global__ void add_one(float* x, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    x[i] += 1.0f;
  }
}

TEST(Standin, RunsAKernel) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  float* x = nullptr;
  ASSERT_EQ(cudaMalloc(&x, 100 * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(x, 0, 100 * sizeof(float), stream), cudaSuccess);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(2);
  config.blockDim = dim3(64);
  config.stream = stream;
  ASSERT_EQ(cudaLaunchKernelEx(&config, add_one, x, 100), cudaSuccess);
  float result[100];
  ASSERT_EQ(cudaMemcpyAsync(result, x, sizeof(result), cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  EXPECT_EQ(result[99], 1.0f);
  EXPECT_EQ(cudaFree(x), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
