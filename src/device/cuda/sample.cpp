#include "device/cuda/sample.hpp"

#include "base/error.hpp"

namespace stagecoach::device::cuda {

void sample(Operation&, const SampleArgs&) { throw InternalError("not written yet"); }
OperationBytes sample_bytes(const ScratchShape&) { return {}; }

}  // namespace stagecoach::device::cuda
