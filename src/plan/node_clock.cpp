#include "plan/node_clock.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace stagecoach::plan {

void NodeClock::start(const Work& work, const StepCost& cost, double now) {
  advance(now);
  running_.push_back({.work = work, .left = cost.seconds, .draws = cost.draws});
  share();
}

double NodeClock::next_end() const {
  const auto& first = running_[next()];
  return now_ + first.left / first.speed;
}

NodeClock::Work NodeClock::finish() {
  STAGECOACH_CHECK(!idle());
  const auto index = next();
  advance(now_ + running_[index].left / running_[index].speed);
  const auto work = running_[index].work;
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  share();
  return work;
}

std::size_t NodeClock::next() const {
  const auto first = std::min_element(
      running_.begin(), running_.end(),
      [](const Running& a, const Running& b) { return a.left / a.speed < b.left / b.speed; });
  return static_cast<std::size_t>(first - running_.begin());
}

void NodeClock::advance(double now) {
  for (auto& running : running_) {
    running.left = std::max(0.0, running.left - (now - now_) * running.speed);
  }
  now_ = now;
}

void NodeClock::share() {
  ++version_;
  std::array<double, kPools> drawn{};
  for (auto& running : running_) {
    running.speed = 1;
    for (std::size_t pool = 0; pool < kPools; ++pool) {
      drawn[pool] += running.draws[pool];
    }
  }
  for (std::size_t pool = 0; pool < kPools; ++pool) {
    if (drawn[pool] <= capacity_[pool]) {
      continue;
    }
    for (auto& running : running_) {
      const auto draw = running.draws[pool];
      const auto beside =
          static_cast<Pool>(pool) == Pool::bus ? drawn_from_bus(running.work.stage) : drawn[pool];
      if (draw > 0 && beside > 0) {
        // A work that alone draws more than there is goes by its own rate: it was measured so.
        const auto there_is = std::max(capacity_[pool], draw);
        running.speed = std::min(running.speed, there_is / beside);
      }
    }
  }
}

double NodeClock::drawn_from_bus(std::int32_t stage) const {
  double drawn = 0;
  for (const auto& running : running_) {
    drawn += running.work.stage == stage ? running.draws[static_cast<std::size_t>(Pool::bus)] : 0;
  }
  return drawn;
}

}  // namespace stagecoach::plan
