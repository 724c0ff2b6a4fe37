#pragma once

#include <memory>

#include "base/abort_signal.hpp"
#include "comm/transport.hpp"

namespace stagecoach::comm {

class LoopbackMailboxes;

/// Ranks as threads of one process. Copies messages through queues in memory.
class LoopbackHub {
 public:
  /// `abort` must outlive the hub and its transports.
  LoopbackHub(int size, const TransportOptions& options, AbortSignal& abort);
  ~LoopbackHub();
  LoopbackHub(const LoopbackHub&) = delete;
  LoopbackHub& operator=(const LoopbackHub&) = delete;
  LoopbackHub(LoopbackHub&&) = delete;
  LoopbackHub& operator=(LoopbackHub&&) = delete;

  /// The transport of one rank, for the thread that plays it. The hub must outlive it.
  [[nodiscard]] std::unique_ptr<Transport> transport(int rank);

 private:
  std::unique_ptr<LoopbackMailboxes> mailboxes_;
};

}  // namespace stagecoach::comm
