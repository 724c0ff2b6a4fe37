#pragma once

#include <memory>

#include "base/abort_signal.hpp"
#include "comm/transport.hpp"

namespace stagecoach::comm {

/// MPI for the life of the process: MPI_Init_thread(MPI_THREAD_MULTIPLE) and MPI_Finalize. Make
/// one, first thing. Throws MpiError if MPI offers less, ConfigError in a build without MPI.
class MpiSession {
 public:
  MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  MpiSession(MpiSession&&) = delete;
  MpiSession& operator=(MpiSession&&) = delete;
  /// Finalizes; on the thread that made it. Not while an exception unwinds a job of several ranks:
  /// the others may never come to MPI_Finalize, and it has no timeout. A process that then exits
  /// (better: calls abort_job) without it makes mpirun end the job.
  ~MpiSession();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// Ends every process of the job at once with this exit code (MPI_Abort).
  [[noreturn]] void abort_job(int exit_code) const noexcept;

 private:
  int rank_ = 0;
  int size_ = 1;
  [[maybe_unused]] int exceptions_ = 0;  ///< in flight when the session was made
};

/// Over a duplicate of MPI_COMM_WORLD, errors returned and checked. Waits poll with a back-off, so
/// that a waiting rank leaves its core to computing ones. Sends to itself go through memory and
/// never block; others may block until they are received. Collective: every rank must make one,
/// within the timeout. `session` and `abort` must outlive it.
///
/// A call that ends by an exception takes back the receives that MPI has not begun with. What MPI
/// has begun with stays under way: nothing of its own memory is freed before it is done, and the
/// caller keeps its buffers as Transport says. That channel to that peer is then out of step: end
/// the job.
std::unique_ptr<Transport> make_mpi_transport(const MpiSession& session,
                                              const TransportOptions& options, AbortSignal& abort);

}  // namespace stagecoach::comm
