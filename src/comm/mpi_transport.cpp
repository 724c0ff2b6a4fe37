#include "comm/mpi_transport.hpp"

#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/system.hpp"
#include "comm/back_off.hpp"
#include "comm/mailbox.hpp"
#include "comm/mpi_check.hpp"
#include "comm/mpi_message.hpp"

namespace stagecoach::comm {
namespace {

/// MPI_Comm_dup and its like have no timeout. Waiting here, with one, for every rank to come keeps
/// them from hanging when one failed at its start.
void meet_all_ranks(const MpiSession& session, const TransportOptions& options,
                    const AbortSignal& abort) {
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(MPI_COMM_WORLD, &request), "begin a barrier");
  BackOff back_off;
  for (int met = 0;;) {
    check_mpi(MPI_Test(&request, &met, MPI_STATUS_IGNORE), "wait for all ranks");
    if (met != 0) {
      return;
    }
    abort.throw_if_raised();
    if (std::chrono::steady_clock::now() >= deadline) {
      throw TransportError(fmt::format(
          "rank {} on {} has waited {:g} s for all {} ranks to start (the limit is --timeout)",
          session.rank(), host_name(), std::chrono::duration<double>(options.timeout).count(),
          session.size()));
    }
    back_off.pause();
  }
}

MPI_Comm duplicate_world() {
  MPI_Comm communicator = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &communicator), "duplicate the communicator");
  check_mpi(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), "set its error handler");
  return communicator;
}

struct HostRanks {
  int rank = 0;
  int size = 1;
};

HostRanks find_ranks_on_this_host(MPI_Comm communicator) {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
            "find the ranks of this host");
  HostRanks ranks;
  check_mpi(MPI_Comm_rank(host, &ranks.rank), "number the ranks of this host");
  check_mpi(MPI_Comm_size(host, &ranks.size), "count the ranks of this host");
  check_mpi(MPI_Comm_free(&host), "free a communicator");
  return ranks;
}

/// Whether MPI was built for device memory and can use it here.
bool reaches_device_memory() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

std::vector<std::string> gather_host_names(MPI_Comm communicator, int ranks) {
  using Name = std::array<char, HOST_NAME_MAX + 1>;
  Name mine{};
  host_name().copy(mine.data(), mine.size() - 1);
  std::vector<Name> all(static_cast<std::size_t>(ranks));
  check_mpi(MPI_Allgather(mine.data(), static_cast<int>(mine.size()), MPI_CHAR, all.data(),
                          static_cast<int>(mine.size()), MPI_CHAR, communicator),
            "exchange host names");
  std::vector<std::string> names;
  for (const auto& name : all) {
    names.emplace_back(name.data());
  }
  return names;
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(const MpiSession& session, const TransportOptions& options, AbortSignal& abort)
      : rank_(session.rank()), size_(session.size()), options_(options), abort_(abort) {
    STAGECOACH_CHECK(options.piece_bytes > 0 && options.piece_bytes <= INT_MAX);
    meet_all_ranks(session, options, abort);
    communicator_ = duplicate_world();
    here_ = find_ranks_on_this_host(communicator_);
    hosts_ = gather_host_names(communicator_, size_);
  }

  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;
  MpiTransport(MpiTransport&&) = delete;
  MpiTransport& operator=(MpiTransport&&) = delete;

  ~MpiTransport() override {
    if (failed_.empty()) {
      MPI_Comm_free(&communicator_);
      return;
    }
    // MPI still knows the addresses of these, and the job is about to end: let them be.
    for (auto& message : failed_) {
      static_cast<void>(message.release());
    }
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] int ranks_on_this_host() const noexcept override { return here_.size; }
  [[nodiscard]] int rank_on_this_host() const noexcept override { return here_.rank; }
  [[nodiscard]] bool hidden_in_device_memory() const noexcept override { return cuda_aware_; }
  [[nodiscard]] std::string describe(int rank) const override {
    return fmt::format("rank {} on {}", rank, hosts_.at(static_cast<std::size_t>(rank)));
  }

  void send(std::span<const std::byte> data, int to, Channel channel,
            const std::string& what) override {
    send_message(data, to, channel, what);
  }

  void receive(std::span<std::byte> data, int from, Channel channel,
               const std::string& what) override {
    auto patience = patience_for(Patience::Direction::receive, from, what);
    if (from == rank_) {
      const auto message = to_myself(channel).take(patience);
      patience.check_length(data.size(), message.size());
      std::copy(message.begin(), message.end(), data.begin());
      return;
    }
    transfer(from, channel, [&](MpiMessage& message) { message.receive(data, patience); });
  }

  void send_message(std::span<const std::byte> data, int to, Channel channel,
                    const std::string& what) override {
    auto patience = patience_for(Patience::Direction::send, to, what);
    patience.check();
    if (to == rank_) {
      to_myself(channel).put(data);
      return;
    }
    transfer(to, channel, [&](MpiMessage& message) { message.send(data, patience); });
  }

  std::vector<std::byte> receive_message(int from, Channel channel,
                                         const std::string& what) override {
    auto patience = patience_for(Patience::Direction::receive, from, what);
    if (from == rank_) {
      return to_myself(channel).take(patience);
    }
    std::vector<std::byte> data;
    transfer(from, channel, [&](MpiMessage& message) { data = message.receive_any(patience); });
    return data;
  }

 private:
  [[nodiscard]] Patience patience_for(Patience::Direction direction, int peer,
                                      const std::string& what) const {
    return {*this, options_.timeout, abort_, direction, peer, what};
  }

  Mailbox& to_myself(Channel channel) { return to_myself_.at(static_cast<std::size_t>(channel)); }

  /// Runs `work` on a message. If it throws, the message lives on until MPI is done with it.
  template <typename Work>
  void transfer(int peer, Channel channel, const Work& work) {
    auto message = std::make_unique<MpiMessage>(
        MpiPeer{communicator_, peer, static_cast<int>(channel)}, options_.piece_bytes);
    try {
      work(*message);
    } catch (...) {
      message->cancel();
      if (!message->finished()) {
        const std::lock_guard lock(failed_mutex_);
        failed_.push_back(std::move(message));
      }
      throw;
    }
  }

  const int rank_;
  const int size_;
  const TransportOptions options_;
  const AbortSignal& abort_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  HostRanks here_;
  const bool cuda_aware_ = reaches_device_memory();
  std::vector<std::string> hosts_;
  std::array<Mailbox, kChannels> to_myself_;
  std::mutex failed_mutex_;
  std::list<std::unique_ptr<MpiMessage>> failed_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(const MpiSession& session,
                                              const TransportOptions& options, AbortSignal& abort) {
  return std::make_unique<MpiTransport>(session, options, abort);
}

}  // namespace stagecoach::comm
