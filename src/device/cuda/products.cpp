#include "device/cuda/products.hpp"

#include "base/error.hpp"

namespace stagecoach::device::cuda {

Products::Products() = default;
Products::~Products() = default;
void Products::linear(Operation&, const LinearArgs&) { throw InternalError("not written yet"); }
std::string Products::version() { throw InternalError("not written yet"); }
OperationBytes Products::bytes(const ScratchShape&) { return {}; }

}  // namespace stagecoach::device::cuda
