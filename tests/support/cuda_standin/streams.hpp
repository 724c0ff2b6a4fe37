#pragma once

#include <memory>

#include "cuda_runtime_api.h"

namespace cuda_standin {

struct StreamState;

/// nullptr: there is no such stream. The null stream is the current device's default one.
std::shared_ptr<StreamState> stream_of(cudaStream_t stream);

}  // namespace cuda_standin
