#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "base/abort_signal.hpp"
#include "comm/transport.hpp"

namespace stagecoach::testing {

/// One promise of comm::Transport. Every rank of a job runs `body` on a fresh transport made with
/// `options` and `abort`; failed expectations are GoogleTest's. After a body that provokes an error
/// the transport is not used again.
struct TransportCase {
  std::string name;
  comm::TransportOptions options;
  std::function<void(comm::Transport& transport, AbortSignal& abort)> body;
};

/// What any transport must do, with any number of ranks: for INSTANTIATE_TEST_SUITE_P.
std::vector<TransportCase> transport_cases();

std::ostream& operator<<(std::ostream& out, const TransportCase& test_case);

}  // namespace stagecoach::testing
