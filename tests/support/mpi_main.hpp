#pragma once

#include "comm/mpi_transport.hpp"

namespace stagecoach::testing {

/// The session that mpi_main.cpp keeps for the whole test program. GoogleTest makes the test
/// objects, so that it cannot be handed to them.
const comm::MpiSession& mpi_session();

}  // namespace stagecoach::testing
