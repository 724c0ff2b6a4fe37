#include "comm/nccl_transport.hpp"

#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "comm/nccl_check.hpp"
#include "comm/nccl_edge.hpp"

namespace stagecoach::comm {
namespace {

/// All ranks begin to connect together: one that is not there after so long has failed.
constexpr std::chrono::milliseconds kLongestStart = std::chrono::minutes(2);

/// Hands the buffer of a send over to the receive that takes it, both of one rank: NCCL wants them
/// in one group.
class Handover {
 public:
  /// Returns when the receiver has given it back.
  void offer(std::span<const std::byte> data, const Patience& patience) {
    std::unique_lock lock(mutex_);
    offered_ = data;
    state_ = State::offered;
    changed_.notify_all();
    wait(lock, State::empty, patience);
  }
  std::span<const std::byte> take(const Patience& patience) {
    std::unique_lock lock(mutex_);
    wait(lock, State::offered, patience);
    return offered_;
  }
  void give_back() {
    const std::lock_guard lock(mutex_);
    state_ = State::empty;
    changed_.notify_all();
  }

 private:
  enum class State { empty, offered };

  void wait(std::unique_lock<std::mutex>& lock, State state, const Patience& patience) {
    // The abort signal cannot notify, so waits are cut into pauses.
    constexpr std::chrono::milliseconds kPause{20};
    while (state_ != state) {
      patience.check();
      changed_.wait_for(lock, kPause);
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::empty;
  std::span<const std::byte> offered_;
};

class NcclTransport final : public Transport {
 public:
  NcclTransport(Transport& other, const NcclOptions& options, const AbortSignal& abort)
      : other_(other), options_(options), abort_(abort) {
    STAGECOACH_CHECK(options.transport.piece_bytes > 0);
    const auto ids = exchange_ids();
    // Each rank is first the receiver of one edge, then the sender of the next: rank 0, which
    // receives from nobody, begins.
    if (rank() > 0) {
      incoming_ = connect(rank() - 1, ids[static_cast<std::size_t>(rank() - 1)].to_next, 1);
    }
    if (rank() + 1 < size()) {
      outgoing_ = connect(rank() + 1, ids[static_cast<std::size_t>(rank())].to_next, 0);
    }
    if (options.to_itself) {
      to_myself_ = connect(rank(), ids[static_cast<std::size_t>(rank())].to_itself, 0);
    }
  }

  [[nodiscard]] int rank() const noexcept override { return other_.rank(); }
  [[nodiscard]] int size() const noexcept override { return other_.size(); }
  [[nodiscard]] int ranks_on_this_host() const noexcept override {
    return other_.ranks_on_this_host();
  }
  [[nodiscard]] int rank_on_this_host() const noexcept override {
    return other_.rank_on_this_host();
  }
  [[nodiscard]] bool hidden_in_device_memory() const noexcept override { return true; }
  [[nodiscard]] std::string describe(int rank) const override { return other_.describe(rank); }

  void send(std::span<const std::byte> data, int to, Channel channel,
            const std::string& what) override {
    const bool mine = to == rank() && to_myself_ != nullptr;
    if (channel != Channel::hidden || !(mine || to == rank() + 1) || to >= size()) {
      other_.send(data, to, channel, what);
      return;
    }
    auto patience = patience_for(Patience::Direction::send, to, what);
    const std::uint64_t length = data.size();
    other_.send(std::as_bytes(std::span(&length, 1)), to, channel, what);
    if (mine) {
      handover_.offer(data, patience);
    } else {
      send_pieces(data, patience, what);
    }
  }

  void receive(std::span<std::byte> data, int from, Channel channel,
               const std::string& what) override {
    const bool mine = from == rank() && to_myself_ != nullptr;
    if (channel != Channel::hidden || !(mine || from + 1 == rank()) || from < 0) {
      other_.receive(data, from, channel, what);
      return;
    }
    auto patience = patience_for(Patience::Direction::receive, from, what);
    std::uint64_t length = 0;
    other_.receive(std::as_writable_bytes(std::span(&length, 1)), from, channel, what);
    patience.check_length(data.size(), length);
    patience.renew();
    if (mine) {
      receive_from_myself(data, patience, what);
    } else {
      receive_pieces(data, patience, what);
    }
  }

  void send_message(std::span<const std::byte> data, int to, Channel channel,
                    const std::string& what) override {
    other_.send_message(data, to, channel, what);
  }
  std::vector<std::byte> receive_message(int from, Channel channel,
                                         const std::string& what) override {
    return other_.receive_message(from, channel, what);
  }

 private:
  /// Names of the communicators whose sender is one rank.
  struct Ids {
    ncclUniqueId to_next{};
    ncclUniqueId to_itself{};
  };

  /// By rank. Where one fails all do, and none waits for an edge that will not be.
  std::vector<Ids> exchange_ids() {
    ByteWriter out;
    std::string failure;
    try {
      Ids mine;
      check_nccl(ncclGetUniqueId(&mine.to_next), "name a communicator");
      check_nccl(ncclGetUniqueId(&mine.to_itself), "name a communicator");
      out.put(mine);
    } catch (const NcclError& error) {
      failure = error.what();
      out.put(Ids{});
    }
    out.put_string(failure);
    std::vector<Ids> ids;
    for (const auto& bytes : all_gather(other_, std::move(out).take(), "NCCL's names")) {
      ByteReader in(bytes);
      ids.push_back(in.get<Ids>());
      if (const auto text = in.get_string(); !text.empty() && failure.empty()) {
        failure = fmt::format("{}: {}", describe(static_cast<int>(ids.size()) - 1), text);
      }
    }
    if (!failure.empty()) {
      throw NcclError(failure);
    }
    return ids;
  }

  std::unique_ptr<NcclEdge> connect(int peer, const ncclUniqueId& id, int place) {
    const std::string what = "the NCCL connection";
    const Patience patience(*this, std::min(options_.transport.timeout, kLongestStart), abort_,
                            Patience::Direction::receive, peer, what);
    return std::make_unique<NcclEdge>(
        options_.device, id, NcclEdge::Place{peer == rank() ? 1 : 2, place}, abort_, patience,
        fmt::format("connect {} with {}", describe(rank()),
                    peer == rank() ? "itself" : describe(peer)));
  }

  [[nodiscard]] Patience patience_for(Patience::Direction direction, int peer,
                                      const std::string& what) const {
    return {*this, options_.transport.timeout, abort_, direction, peer, what};
  }

  /// Calls `work(offset, bytes)` for each piece.
  template <typename Work>
  void in_pieces(std::size_t size_bytes, Patience& patience, const Work& work) const {
    const auto piece = options_.transport.piece_bytes;
    for (std::size_t offset = 0; offset < size_bytes; offset += piece) {
      work(offset, std::min(piece, size_bytes - offset));
      patience.renew();
    }
  }

  void send_pieces(std::span<const std::byte> data, Patience& patience, const std::string& what) {
    in_pieces(data.size(), patience, [&](std::size_t offset, std::size_t bytes) {
      const auto enqueue = [&](ncclComm_t communicator, cudaStream_t stream) {
        return ncclSend(data.data() + offset, bytes, ncclUint8, 1, communicator, stream);
      };
      outgoing_->run(enqueue, patience, fmt::format("send {} to {}", what, describe(rank() + 1)));
    });
  }

  void receive_pieces(std::span<std::byte> data, Patience& patience, const std::string& what) {
    in_pieces(data.size(), patience, [&](std::size_t offset, std::size_t bytes) {
      const auto enqueue = [&](ncclComm_t communicator, cudaStream_t stream) {
        return ncclRecv(data.data() + offset, bytes, ncclUint8, 0, communicator, stream);
      };
      incoming_->run(enqueue, patience,
                     fmt::format("receive {} from {}", what, describe(rank() - 1)));
    });
  }

  void receive_from_myself(std::span<std::byte> data, Patience& patience, const std::string& what) {
    const auto source = handover_.take(patience);
    in_pieces(data.size(), patience, [&](std::size_t offset, std::size_t bytes) {
      const auto enqueue = [&](ncclComm_t communicator, cudaStream_t stream) {
        return grouped([&] {
          check_nccl(ncclSend(source.data() + offset, bytes, ncclUint8, 0, communicator, stream),
                     "send to its own rank");
          check_nccl(ncclRecv(data.data() + offset, bytes, ncclUint8, 0, communicator, stream),
                     "receive from its own rank");
        });
      };
      to_myself_->run(enqueue, patience, fmt::format("send {} to its own rank", what));
    });
    handover_.give_back();
  }

  /// What the group ends with. A group that was begun must be ended.
  template <typename Work>
  static ncclResult_t grouped(const Work& work) {
    check_nccl(ncclGroupStart(), "begin a group");
    try {
      work();
    } catch (...) {
      ncclGroupEnd();
      throw;
    }
    return ncclGroupEnd();
  }

  Transport& other_;
  const NcclOptions options_;
  const AbortSignal& abort_;
  std::unique_ptr<NcclEdge> incoming_;
  std::unique_ptr<NcclEdge> outgoing_;
  std::unique_ptr<NcclEdge> to_myself_;
  Handover handover_;
};

}  // namespace

bool built_with_nccl() { return true; }

std::string nccl_status() {
  int version = 0;
  if (const auto result = ncclGetVersion(&version); result != ncclSuccess) {
    return fmt::format("NCCL does not tell its version: {}", ncclGetErrorString(result));
  }
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::unique_ptr<Transport> make_nccl_transport(Transport& other, const NcclOptions& options,
                                               const AbortSignal& abort) {
  return std::make_unique<NcclTransport>(other, options, abort);
}

}  // namespace stagecoach::comm
