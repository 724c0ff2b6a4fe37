#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "device/cuda/attention_kernels.hpp"
#include "device/cuda/attention_work.hpp"

namespace stagecoach::device::cuda {

/// Attention of many rows of a sequence on tensor cores, all pages here and head_dim at most
/// kWidestTileHead. Numbers beyond f16 are cut to its largest; what is not finite stays so, and a
/// value that is NaN or infinite makes NaN of those rows of its tile, too, that do not see it.
void launch_tiles(cudaStream_t stream, const AttentionView& view, const TileWork* tiles,
                  std::size_t count);

}  // namespace stagecoach::device::cuda
