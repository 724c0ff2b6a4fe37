#pragma once

#include "device/cuda/operation.hpp"
#include "device/device.hpp"

namespace stagecoach::device::cuda {

/// Device::sample, by the host's rules: the lowest id among equal logits, top_k before top_p,
/// logprobs in f64 (at most 1000 tokens a row, as a job may ask for). Draws go by weights in whole
/// numbers, so they repeat exactly; they are the host's unless `uniform` or `top_p` is within
/// vocab^2 / 2^61 (1e-9 for OPT) of where the token changes. Logits that are not finite end the job
/// by the host's message.
void sample(Operation& operation, const SampleArgs& args);

}  // namespace stagecoach::device::cuda
