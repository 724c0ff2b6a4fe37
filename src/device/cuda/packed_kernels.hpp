#pragma once

#include <cuda_runtime_api.h>

#include "device/device.hpp"

namespace stagecoach::device::cuda {

// The kernels of packed_kernels.cu; each enqueues one on `stream`. Rows of weights are packed
// (base/packing.hpp). No rows: nothing.

/// Device::widen.
void launch_widen(cudaStream_t stream, const WidenArgs& args);
/// Device::embed with a packed token table; `tokens` and `positions` are in the device's memory.
void launch_embed_packed(cudaStream_t stream, const EmbedArgs& args, const std::int32_t* tokens,
                         const std::int32_t* positions);
/// Device::linear of at most kPackedProductRows rows, from the weights as they lie.
void launch_packed_product(cudaStream_t stream, const LinearArgs& args);

}  // namespace stagecoach::device::cuda
