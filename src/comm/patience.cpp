#include "comm/patience.hpp"

#include "base/error.hpp"

namespace stagecoach::comm {

Patience::Patience(const Transport& transport, std::chrono::milliseconds timeout,
                   const AbortSignal& abort, Direction direction, int peer, const std::string& what)
    : transport_(transport),
      timeout_(timeout),
      abort_(abort),
      direction_(direction),
      peer_(peer),
      what_(what),
      deadline_(std::chrono::steady_clock::now() + timeout) {
  STAGECOACH_CHECK(peer >= 0 && peer < transport.size(), "{}: there is no rank {}", what, peer);
}

void Patience::check() const {
  abort_.throw_if_raised();
  if (std::chrono::steady_clock::now() >= deadline_) {
    throw TransportError(fmt::format(
        "{} has waited {:g} s {} {} (the limit is --timeout)",
        transport_.describe(transport_.rank()), std::chrono::duration<double>(timeout_).count(),
        direction_ == Direction::receive ? "for" : "to send", describe()));
  }
}

void Patience::check_length(std::size_t expected_bytes, std::size_t received_bytes) const {
  if (expected_bytes != received_bytes) {
    throw TransportError(fmt::format("{} expected {} bytes as {}, but {} came: the ranks disagree",
                                     transport_.describe(transport_.rank()), expected_bytes,
                                     describe(), received_bytes));
  }
}

std::string Patience::describe() const {
  return fmt::format("{} {} {}", what_, direction_ == Direction::receive ? "from" : "to",
                     transport_.describe(peer_));
}

}  // namespace stagecoach::comm
