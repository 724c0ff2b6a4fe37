#include "support/cuda_standin/adversary.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "support/cuda_standin/engine.hpp"

namespace cuda_standin {
namespace {

std::uint64_t mix(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ull;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebull;
  return bits ^ (bits >> 31);
}

// The stream and those whose records its next task waits for, and so on.
void add_needed(StreamState* stream, std::set<StreamState*>& needed) {
  if (stream == nullptr || !needed.insert(stream).second || stream->tasks.empty()) {
    return;
  }
  if (const Task& next = stream->tasks.front(); !runnable(next)) {
    add_needed(next.recorder.get(), needed);
  }
}

}  // namespace

void Adversary::begin_epoch() {
  constexpr std::array<Way, 6> kWays = {Way::needed_only, Way::needed_only, Way::needed_last,
                                        Way::needed_last, Way::starve,      Way::any};
  way_ = kWays[random_() % kWays.size()];
  ranks_ = random_();
  left_ = coin() ? static_cast<int>(1 + random_() % 4) : static_cast<int>(16 + random_() % 64);
  hold_ = std::chrono::microseconds(random_hold());
}

// In microseconds. Long ones find more where the machine is busy, and cost more.
std::uint64_t Adversary::random_hold() {
  switch (random_() % 4) {
    case 0:
      return 0;
    case 1:
      return 2000 + random_() % 6000;
    default:
      return 200 + random_() % 1000;
  }
}

StreamState* Adversary::first_by_rank(const std::vector<StreamState*>& streams) const {
  return *std::max_element(streams.begin(), streams.end(), [this](StreamState* a, StreamState* b) {
    const auto rank = [this](const StreamState* stream) {
      return mix(ranks_ + static_cast<std::uint64_t>(stream->number) * 0x9e3779b97f4a7c15ull);
    };
    return rank(a) < rank(b);
  });
}

StreamState* Adversary::choose(const std::vector<StreamState*>& candidates,
                               const std::vector<const Waiter*>& waiters) {
  if (--left_ < 0) {
    begin_epoch();
  }
  if (way_ == Way::any) {
    return candidates[random_() % candidates.size()];
  }
  if (way_ == Way::starve || waiters.empty()) {
    return first_by_rank(candidates);
  }
  std::set<StreamState*> needed;
  for (const Waiter* const waiter : waiters) {
    add_needed(waiter->stream.get(), needed);
  }
  std::vector<StreamState*> preferred;
  for (StreamState* const stream : candidates) {
    if ((needed.count(stream) != 0) == (way_ == Way::needed_only)) {
      preferred.push_back(stream);
    }
  }
  return first_by_rank(preferred.empty() ? candidates : preferred);
}

}  // namespace cuda_standin
