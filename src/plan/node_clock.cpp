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
  for (auto& running : running_) {
    running.speed = 1;
  }
  for (std::size_t pool = 0; pool < kPools; ++pool) {
    const bool own = static_cast<Pool>(pool) == Pool::bus;
    for (auto& running : running_) {
      double drawn = 0;
      for (const auto& other : running_) {
        drawn += own && other.work.stage != running.work.stage ? 0 : other.draws[pool];
      }
      if (running.draws[pool] > 0 && drawn > capacity_[pool]) {
        // A work that alone draws more than there is goes by its own rate: it was measured so.
        const auto there_is = std::max(capacity_[pool], running.draws[pool]);
        running.speed = std::min(running.speed, std::min(1.0, there_is / drawn));
      }
    }
  }
}

}  // namespace stagecoach::plan
