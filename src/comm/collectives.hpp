#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "comm/transport.hpp"

namespace stagecoach::comm {

/// Built from messages on Channel::setup, so that each has the transport's timeout. Every rank
/// calls the same ones in the same order.

/// Rank 0's bytes, on every rank.
std::vector<std::byte> broadcast(Transport& transport, std::span<const std::byte> bytes,
                                 const std::string& what);

/// Every rank's bytes, by rank, on every rank.
std::vector<std::vector<std::byte>> all_gather(Transport& transport,
                                               std::span<const std::byte> bytes,
                                               const std::string& what);

/// Returns when every rank has come.
void barrier(Transport& transport, const std::string& what);

}  // namespace stagecoach::comm
