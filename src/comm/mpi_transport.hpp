#pragma once

#include <memory>

#include "base/abort_signal.hpp"
#include "comm/transport.hpp"

namespace stagecoach::comm {

/// MPI for the life of the process: MPI_Init_thread(MPI_THREAD_MULTIPLE) and MPI_Finalize. Make one,
/// first thing. Throws MpiError if MPI offers less, ConfigError in a build without MPI.
class MpiSession {
 public:
  MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  MpiSession(MpiSession&&) = delete;
  MpiSession& operator=(MpiSession&&) = delete;
  /// Finalizes, unless `end_without_finalize` was called.
  ~MpiSession();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// Ends every process of the job at once with this exit code (MPI_Abort).
  [[noreturn]] void abort_job(int exit_code) const noexcept;

 private:
  int rank_ = 0;
  int size_ = 1;
};

/// Over a duplicate of MPI_COMM_WORLD, errors returned and checked. Waits poll with a back-off, so
/// that a waiting rank leaves its core to computing ones. Collective: every rank must make one.
/// `session` and `abort` must outlive it.
std::unique_ptr<Transport> make_mpi_transport(const MpiSession& session,
                                              const TransportOptions& options, AbortSignal& abort);

}  // namespace stagecoach::comm
