#include "comm/mpi_check.hpp"

#include <string_view>

#include "base/error.hpp"

namespace stagecoach::comm {

void check_mpi(int code, const char* action) {
  if (code == MPI_SUCCESS) {
    return;
  }
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) {
    throw MpiError(fmt::format("MPI could not {}: error {}", action, code));
  }
  throw MpiError(fmt::format("MPI could not {}: {}", action,
                             std::string_view(text, static_cast<std::size_t>(length))));
}

}  // namespace stagecoach::comm
