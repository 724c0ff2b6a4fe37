#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "comm/collectives.hpp"
#include "device/host/host_device.hpp"
#include "plan/measure_cases.hpp"
#include "plan/measure_timing.hpp"

namespace stagecoach::plan {
namespace {

constexpr std::size_t kTinyBytes = 8;
constexpr std::int64_t kLeastExchanges = 5;
constexpr std::int64_t kMostExchanges = 2000;

/// What goes to the next stage and is answered by it with a few bytes, while the stage before does
/// the same with this one. The last one's next is the first.
class Exchange {
 public:
  Exchange(const MeasureKit& kit, std::size_t message_bytes)
      : abort_(*kit.options().abort),
        transport_(kit.transport()),
        to_next_(kit.dram().first(message_bytes)),
        from_previous_(kit.dram().subspan(message_bytes, message_bytes)),
        answers_(device::make_host_stream("answers", abort_)) {}

  /// Seconds of each of `count` exchanges with the next stage.
  std::vector<double> run(std::int64_t count) try {
    answers_->enqueue([this, count] { answer(count); });
    std::vector<double> seconds;
    for (std::int64_t i = 0; i < count; ++i) {
      const double start = now_seconds();
      ask();
      seconds.push_back(now_seconds() - start);
    }
    answers_->record().wait();
    return seconds;
  } catch (...) {
    // Before the stream is joined, which may be waiting for a message that never comes.
    abort_.raise(std::current_exception());
    throw;
  }

 private:
  // Answers have a channel of their own: of two stages each is the other's next one.
  static constexpr auto kThere = comm::Channel::hidden;
  static constexpr auto kBack = comm::Channel::tokens;

  [[nodiscard]] int next() const { return (transport_.rank() + 1) % transport_.size(); }
  [[nodiscard]] int previous() const {
    return (transport_.rank() + transport_.size() - 1) % transport_.size();
  }

  void ask() {
    std::byte answer[kTinyBytes];
    transport_.send(to_next_, next(), kThere, "a measured message");
    transport_.receive(answer, next(), kBack, "an answer to a measured message");
  }

  void answer(std::int64_t count) {
    const std::byte answer[kTinyBytes] = {};
    for (std::int64_t i = 0; i < count; ++i) {
      transport_.receive(from_previous_, previous(), kThere, "a measured message");
      transport_.send(answer, previous(), kBack, "an answer to a measured message");
    }
  }

  AbortSignal& abort_;
  comm::Transport& transport_;
  std::span<std::byte> to_next_;
  std::span<std::byte> from_previous_;
  std::unique_ptr<device::Stream> answers_;  // last: it uses all of the above
};

double exchange_seconds(const MeasureKit& kit, std::size_t message_bytes) {
  const auto what = fmt::format("messages of {} bytes", message_bytes);
  Exchange exchange(kit, message_bytes);
  comm::barrier(kit.transport(), what);
  static_cast<void>(exchange.run(2));
  const double once = std::max(exchange.run(2).back(), 1e-9);
  // As many on every rank: by the slowest.
  const auto all = kit.gather(what, once);
  const double slowest = *std::max_element(all.begin(), all.end());
  return median(exchange.run(
      std::clamp(static_cast<std::int64_t>(std::min(kit.options().seconds / slowest, 1e9)),
                 kLeastExchanges, kMostExchanges)));
}

std::string text_of(const LinkRates& link) {
  return fmt::format("{:.1f} us and {:.2f} GB/s", link.latency_seconds * 1e6,
                     link.bytes_per_second * 1e-9);
}

}  // namespace

std::optional<LinkRates> mean_link(const std::vector<LinkRates>& links,
                                   const std::vector<std::string>& hosts, const std::string& host,
                                   bool local) {
  LinkRates sum;
  int count = 0;
  for (std::size_t rank = 0; rank < links.size(); ++rank) {
    const auto& next = hosts[(rank + 1) % links.size()];
    if (hosts[rank] == host && (next == host) == local) {
      sum.latency_seconds += links[rank].latency_seconds;
      sum.bytes_per_second += links[rank].bytes_per_second;
      ++count;
    }
  }
  if (count == 0) {
    return std::nullopt;
  }
  return LinkRates{.latency_seconds = rounded(sum.latency_seconds / count),
                   .bytes_per_second = rounded(sum.bytes_per_second / count)};
}

void measure_links(MeasureKit& kit, NodeProfile& profile) {
  const double tiny = exchange_seconds(kit, kTinyBytes);
  const double large = exchange_seconds(kit, kit.sizes().message_bytes);
  // There and back; what a large message takes beyond that is its bytes.
  const auto latencies = kit.gather("latencies", tiny / 2);
  const auto rates = kit.gather(
      "links", static_cast<double>(kit.sizes().message_bytes) / std::max(large - tiny, large / 10));
  std::vector<LinkRates> links;
  for (std::size_t rank = 0; rank < latencies.size(); ++rank) {
    links.push_back({.latency_seconds = latencies[rank], .bytes_per_second = rates[rank]});
  }
  const auto& host = kit.hosts()[static_cast<std::size_t>(kit.transport().rank())];
  const auto local = mean_link(links, kit.hosts(), host, true);
  const auto remote = mean_link(links, kit.hosts(), host, false);
  profile.local_link = local ? *local : *remote;
  profile.link = remote ? *remote : *local;
  if (!remote) {
    kit.note("link: no stage of this node was followed by one on another; it is local_link's");
  }
  if (!local) {
    kit.note("local_link: no stage of this node was followed by one on it; it is link's");
  }
  if (links.size() == 1) {
    kit.note("local_link: a stage's messages to itself, since there was one stage");
  }
  kit.tell(fmt::format("messages: {} on this node, {} to others", text_of(profile.local_link),
                       text_of(profile.link)));
}

}  // namespace stagecoach::plan
