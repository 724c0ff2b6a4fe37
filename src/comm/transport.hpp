#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace stagecoach::comm {

/// Separate orders of messages between the same two ranks.
enum class Channel : int {
  setup,   ///< configuration and agreement, before and after the run
  plan,    ///< what a visit carries, to the next stage
  hidden,  ///< hidden states, to the next stage
  tokens   ///< chosen tokens, from the last stage to the first
};
inline constexpr int kChannels = 4;

/// Messages between the ranks of one job. All it promises is order: messages of one (sender,
/// receiver, channel) arrive in the order sent. Calls may come from several threads at once, though
/// only from one at a time for each (peer, channel, direction). A rank may send to itself.
///
/// Every call blocks, but none for ever: when nothing has come for the transport's timeout it
/// throws TransportError ("rank 2 on host-b has waited 1800 s for visit 17's hidden states from
/// rank 1 on host-a"), and JobAborted soon after the process's AbortSignal is raised. `what` names
/// the message for those lines. After an exception the buffers of the call must stay alive until
/// the process ends or the transport is destroyed.
class Transport {
 public:
  virtual ~Transport() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// Ranks on this rank's machine, itself included.
  [[nodiscard]] virtual int ranks_on_this_host() const noexcept = 0;
  /// This rank's number among them, by rank.
  [[nodiscard]] virtual int rank_on_this_host() const noexcept = 0;
  /// Whether `send` and `receive` on Channel::hidden, to the next rank and from the one before,
  /// may be given device memory of a GPU.
  [[nodiscard]] virtual bool hidden_in_device_memory() const noexcept { return false; }
  /// "rank 2 on host-b"
  [[nodiscard]] virtual std::string describe(int rank) const = 0;

  /// Sends all of `data`, whose length the receiver knows; returns when `data` may be reused.
  virtual void send(std::span<const std::byte> data, int to, Channel channel,
                    const std::string& what) = 0;
  /// Fills `data` from one `send` of the same length; another length is a TransportError.
  virtual void receive(std::span<std::byte> data, int from, Channel channel,
                       const std::string& what) = 0;

  /// The same for a message that carries its own length (0 is allowed).
  virtual void send_message(std::span<const std::byte> data, int to, Channel channel,
                            const std::string& what) = 0;
  [[nodiscard]] virtual std::vector<std::byte> receive_message(int from, Channel channel,
                                                               const std::string& what) = 0;
};

struct TransportOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Longer messages are cut into pieces of this: MPI counts are ints.
  std::size_t piece_bytes = std::size_t{256} << 20;
};

}  // namespace stagecoach::comm
