#pragma once

#include <mpi.h>

namespace stagecoach::comm {

/// Throws MpiError ("MPI could not <action>: <MPI's own text>") unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* action);

}  // namespace stagecoach::comm
