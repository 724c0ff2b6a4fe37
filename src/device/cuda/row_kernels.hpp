#pragma once

#include <cuda_runtime_api.h>

#include "device/device.hpp"

namespace stagecoach::device::cuda {

// The kernels of row_kernels.cu; each enqueues one on `stream`. No rows: nothing.

/// Device::embed with a token table in f16; `tokens` and `positions` are in the device's memory.
void launch_embed(cudaStream_t stream, const EmbedArgs& args, const std::int32_t* tokens,
                  const std::int32_t* positions);
void launch_layer_norm(cudaStream_t stream, const LayerNormArgs& args);
/// Device::gather_rows; `rows` is in the device's memory.
void launch_gather_rows(cudaStream_t stream, const GatherRowsArgs& args, const std::int32_t* rows);
/// to[i] = from[i] in f16, to nearest even; beyond f16's range the largest f16 of that sign; NaN
/// stays NaN.
void launch_round(cudaStream_t stream, const float* from, Half* to, std::int64_t count);
/// What is left of a product's epilogue: out += bias, and the cut at 0. Neither: nothing.
void launch_epilogue(cudaStream_t stream, const LinearArgs& args);

}  // namespace stagecoach::device::cuda
