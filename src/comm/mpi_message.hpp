#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/patience.hpp"

namespace stagecoach::comm {

/// The other end of a message.
struct MpiPeer {
  MPI_Comm communicator = MPI_COMM_NULL;
  int rank = 0;
  int tag = 0;
};

/// One message under way: its length in 8 bytes, then its bytes in pieces, all with one tag, so
/// that MPI's own order keeps them apart from the next message's. An object's address is known to
/// MPI until `finished`: it may be destroyed only then.
class MpiMessage {
 public:
  MpiMessage(const MpiPeer& peer, std::size_t piece_bytes);
  MpiMessage(const MpiMessage&) = delete;
  MpiMessage& operator=(const MpiMessage&) = delete;
  MpiMessage(MpiMessage&&) = delete;
  MpiMessage& operator=(MpiMessage&&) = delete;
  ~MpiMessage() = default;

  /// Sends `data`; returns when it may be reused.
  void send(std::span<const std::byte> data, Patience& patience);

  /// Fills `data`. Everything is posted before the first wait, so that the bytes land where they
  /// belong without another copy. Throws TransportError if a message of another length came.
  void receive(std::span<std::byte> data, Patience& patience);

  /// Receives a message of any length.
  [[nodiscard]] std::vector<std::byte> receive_any(Patience& patience);

  /// Takes back what MPI has not begun with. For messages that failed; reports nothing.
  void cancel() noexcept;

  /// True when MPI holds no address of this message any more. Makes progress.
  [[nodiscard]] bool finished() noexcept;

 private:
  void post_length();
  void post_pieces(std::span<std::byte> data);
  void set_pieces(std::size_t size_bytes);
  [[nodiscard]] int piece_length(std::size_t piece) const;
  void wait_for_length(Patience& patience);
  void wait_for_pieces(Patience& patience);
  void check_received(const MPI_Status& status, int expected_bytes, const Patience& patience) const;

  const MpiPeer peer_;
  const std::size_t piece_bytes_;
  bool receiving_ = false;
  std::uint64_t length_ = 0;
  std::size_t size_bytes_ = 0;
  MPI_Request length_request_ = MPI_REQUEST_NULL;
  std::vector<MPI_Request> piece_requests_;
  std::vector<std::byte> received_;
};

}  // namespace stagecoach::comm
