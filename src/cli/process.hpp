#pragma once

#include <memory>
#include <string>

#include "comm/mpi_transport.hpp"

namespace stagecoach::cli {

/// This process among those of its job: MPI where a launcher started it, alone otherwise.
class Process {
 public:
  /// Starts MPI if an MPI launcher (mpirun, srun with PMI) started this process.
  void join_launched_job();
  /// Starts MPI for a job of one rank.
  void start_mpi();

  /// Null without MPI.
  [[nodiscard]] const comm::MpiSession* session() const noexcept { return session_.get(); }

  /// Prints `message` on one line of standard error, with rank and host where there are several.
  void complain(const std::string& message) const noexcept;
  /// Ends this process's part: with other ranks running, ends them too and does not return.
  [[nodiscard]] int end_job(int exit_code) const noexcept;

 private:
  std::unique_ptr<comm::MpiSession> session_;
};

}  // namespace stagecoach::cli
