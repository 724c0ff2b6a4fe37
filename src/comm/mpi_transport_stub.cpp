#include <cstdlib>

#include "base/error.hpp"
#include "comm/mpi_transport.hpp"

namespace stagecoach::comm {
namespace {

constexpr const char* kNoMpi =
    "this build has no MPI: configure with -DSTAGECOACH_WITH_MPI=ON, or use --transport loopback";

}  // namespace

MpiSession::MpiSession() { throw ConfigError(kNoMpi); }

MpiSession::~MpiSession() = default;

void MpiSession::abort_job(int exit_code) const noexcept { std::_Exit(exit_code); }

std::unique_ptr<Transport> make_mpi_transport(const MpiSession& /*session*/,
                                              const TransportOptions& /*options*/,
                                              AbortSignal& /*abort*/) {
  throw ConfigError(kNoMpi);
}

}  // namespace stagecoach::comm
