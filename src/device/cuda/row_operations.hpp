#pragma once

#include "device/cuda/operation.hpp"
#include "device/device.hpp"

namespace stagecoach::device::cuda {

/// Operations on rows by themselves, as Device declares them. All issue their kernels and return;
/// arguments have been checked.
void embed(Operation& operation, const EmbedArgs& args);
void layer_norm(Operation& operation, const LayerNormArgs& args);
void gather_rows(Operation& operation, const GatherRowsArgs& args);
/// The same f16 numbers as the host's, bit for bit.
void widen(Operation& operation, const WidenArgs& args);

}  // namespace stagecoach::device::cuda
