#pragma once

#include "device/cuda/operation.hpp"
#include "device/device.hpp"

namespace stagecoach::device::cuda {

/// Device::sample, by the host's rules: the lowest id among equal logits, top_k before top_p,
/// logprobs in f64. Logits that are not finite end the job by the host's message.
void sample(Operation& operation, const SampleArgs& args);

OperationBytes sample_bytes(const ScratchShape& shape);

}  // namespace stagecoach::device::cuda
