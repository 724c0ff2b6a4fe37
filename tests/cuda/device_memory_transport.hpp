#pragma once

#include <memory>

#include "comm/transport.hpp"

namespace stagecoach::test {

/// `inner` whose hidden channel takes the host's memory, for the promises of every transport: what
/// goes to the next rank, or, if `to_itself`, to the same one, is copied to `device`'s memory and
/// sent from there, and received likewise. A direction has one buffer, which is used again at once.
std::unique_ptr<comm::Transport> with_device_memory(std::unique_ptr<comm::Transport> inner,
                                                    int device, bool to_itself);

}  // namespace stagecoach::test
