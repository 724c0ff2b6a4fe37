#include "comm/loopback_transport.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/system.hpp"
#include "comm/mailbox.hpp"

namespace stagecoach::comm {

/// One mailbox for each (sender, receiver, channel).
class LoopbackMailboxes {
 public:
  LoopbackMailboxes(int size, const TransportOptions& options, const AbortSignal& abort)
      : size_(size),
        options_(options),
        abort_(abort),
        host_(host_name()),
        boxes_(static_cast<std::size_t>(size) * static_cast<std::size_t>(size) * kChannels) {}

  Mailbox& box(int from, int to, Channel channel) {
    const auto pair = static_cast<std::size_t>(from) * static_cast<std::size_t>(size_) +
                      static_cast<std::size_t>(to);
    return boxes_.at(pair * kChannels + static_cast<std::size_t>(channel));
  }

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const std::string& host() const noexcept { return host_; }
  [[nodiscard]] const TransportOptions& options() const noexcept { return options_; }
  [[nodiscard]] const AbortSignal& abort() const noexcept { return abort_; }

 private:
  const int size_;
  const TransportOptions options_;
  const AbortSignal& abort_;
  const std::string host_;
  std::vector<Mailbox> boxes_;
};

namespace {

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(LoopbackMailboxes& mailboxes, int rank) : mailboxes_(mailboxes), rank_(rank) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return mailboxes_.size(); }
  [[nodiscard]] int ranks_on_this_host() const noexcept override { return mailboxes_.size(); }
  [[nodiscard]] int rank_on_this_host() const noexcept override { return rank_; }
  [[nodiscard]] std::string describe(int rank) const override {
    return fmt::format("rank {} on {}", rank, mailboxes_.host());
  }

  void send(std::span<const std::byte> data, int to, Channel channel,
            const std::string& what) override {
    send_message(data, to, channel, what);
  }

  void receive(std::span<std::byte> data, int from, Channel channel,
               const std::string& what) override {
    const auto patience = patience_for(Patience::Direction::receive, from, what);
    const auto message = mailboxes_.box(from, rank_, channel).take(patience);
    patience.check_length(data.size(), message.size());
    std::copy(message.begin(), message.end(), data.begin());
  }

  void send_message(std::span<const std::byte> data, int to, Channel channel,
                    const std::string& what) override {
    patience_for(Patience::Direction::send, to, what).check();
    mailboxes_.box(rank_, to, channel).put(data);
  }

  std::vector<std::byte> receive_message(int from, Channel channel,
                                         const std::string& what) override {
    const auto patience = patience_for(Patience::Direction::receive, from, what);
    return mailboxes_.box(from, rank_, channel).take(patience);
  }

 private:
  [[nodiscard]] Patience patience_for(Patience::Direction direction, int peer,
                                      const std::string& what) const {
    return {*this, mailboxes_.options().timeout, mailboxes_.abort(), direction, peer, what};
  }

  LoopbackMailboxes& mailboxes_;
  const int rank_;
};

}  // namespace

LoopbackHub::LoopbackHub(int size, const TransportOptions& options, AbortSignal& abort) {
  STAGECOACH_CHECK(size > 0);
  mailboxes_ = std::make_unique<LoopbackMailboxes>(size, options, abort);
}

LoopbackHub::~LoopbackHub() = default;

std::unique_ptr<Transport> LoopbackHub::transport(int rank) {
  STAGECOACH_CHECK(rank >= 0 && rank < mailboxes_->size(), "there is no rank {}", rank);
  return std::make_unique<LoopbackTransport>(*mailboxes_, rank);
}

}  // namespace stagecoach::comm
