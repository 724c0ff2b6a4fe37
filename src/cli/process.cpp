#include "cli/process.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "base/system.hpp"

namespace stagecoach::cli {
namespace {

/// Set for every process by Open MPI's mpirun, by PMIx servers (srun --mpi=pmix) and by PMI ones.
bool launched_by_mpi() {
  constexpr std::array kSigns = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

}  // namespace

void Process::join_launched_job() {
  if (launched_by_mpi()) {
    start_mpi();
  }
}

void Process::start_mpi() {
  if (session_ == nullptr) {
    session_ = std::make_unique<comm::MpiSession>();
  }
}

void Process::complain(const std::string& message) const noexcept {
  if (session_ != nullptr && session_->size() > 1) {
    std::fprintf(stderr, "stagecoach: rank %d on %s: %s\n", session_->rank(), host_name().c_str(),
                 message.c_str());
  } else {
    std::fprintf(stderr, "stagecoach: %s\n", message.c_str());
  }
}

int Process::end_job(int exit_code) const noexcept {
  std::fflush(nullptr);
  if (session_ != nullptr && session_->size() > 1) {
    session_->abort_job(exit_code);
  }
  return exit_code;
}

}  // namespace stagecoach::cli
