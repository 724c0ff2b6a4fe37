#include "base/error.hpp"
#include "comm/nccl_transport.hpp"

namespace stagecoach::comm {

bool built_with_nccl() { return false; }

std::string nccl_status() {
  return "built without NCCL: configure with -DSTAGECOACH_WITH_CUDA=ON -DSTAGECOACH_WITH_NCCL=ON";
}

std::unique_ptr<Transport> make_nccl_transport(Transport& /*other*/, const NcclOptions& /*options*/,
                                               const AbortSignal& /*abort*/) {
  throw ConfigError("--transport nccl: " + nccl_status());
}

}  // namespace stagecoach::comm
