#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "base/error.hpp"
#include "comm/mpi_check.hpp"
#include "comm/mpi_transport.hpp"

namespace stagecoach::comm {

MpiSession::MpiSession() : exceptions_(std::uncaught_exceptions()) {
  int initialized = 0;
  check_mpi(MPI_Initialized(&initialized), "tell its state");
  STAGECOACH_CHECK(initialized == 0, "a process has one MpiSession");
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "start");
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw MpiError("this MPI offers no MPI_THREAD_MULTIPLE: use one built with threads");
  }
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "set its error handler");
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "tell the rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "tell the number of ranks");
}

MpiSession::~MpiSession() {
  if (size_ > 1 && std::uncaught_exceptions() > exceptions_) {
    return;
  }
  if (MPI_Finalize() != MPI_SUCCESS) {
    std::fputs("MPI_Finalize failed\n", stderr);
  }
}

void MpiSession::abort_job(int exit_code) const noexcept {
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace stagecoach::comm
