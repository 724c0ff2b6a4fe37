#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "base/abort_signal.hpp"
#include "comm/transport.hpp"

namespace stagecoach::comm {

/// What a blocking call of a transport waits for, and when it gives up. Lives as long as the call.
class Patience {
 public:
  enum class Direction { send, receive };

  /// Keeps references to `transport`, `abort` and `what`.
  Patience(const Transport& transport, std::chrono::milliseconds timeout, const AbortSignal& abort,
           Direction direction, int peer, const std::string& what);

  /// Throws JobAborted if the signal was raised, TransportError if the timeout has passed since
  /// construction or the last `renew`.
  void check() const;

  /// Something of the message came: the timeout starts again.
  void renew() { deadline_ = std::chrono::steady_clock::now() + timeout_; }

  [[nodiscard]] std::chrono::steady_clock::time_point deadline() const noexcept {
    return deadline_;
  }

  /// Throws TransportError unless the lengths of the message are equal.
  void check_length(std::size_t expected_bytes, std::size_t received_bytes) const;

  /// "visit 17's hidden states from rank 1 on host-a", or "... to rank 1 on host-a"
  [[nodiscard]] std::string describe() const;

 private:
  const Transport& transport_;
  std::chrono::milliseconds timeout_;
  const AbortSignal& abort_;
  Direction direction_;
  int peer_;
  const std::string& what_;
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace stagecoach::comm
