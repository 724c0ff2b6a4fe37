#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/cost_model.hpp"

namespace stagecoach::plan {

/// The works that run on one node at the same time. Where together they draw more of a pool than
/// there is, each of those that draw from it slows down in proportion.
class NodeClock {
 public:
  struct Work {
    std::int32_t stage = 0;  ///< of the job
    stage::Resource resource{};
  };

  /// `capacity` of each pool; that of the bus is each stage's own.
  explicit NodeClock(const std::array<double, kPools>& capacity) : capacity_(capacity) {}

  /// Begins a work at `now`, which is not before any time told so far.
  void start(const Work& work, const StepCost& cost, double now);
  [[nodiscard]] bool idle() const noexcept { return running_.empty(); }
  /// When the next work ends if no other begins before; only if not idle().
  [[nodiscard]] double next_end() const;
  /// Ends that work, at next_end(). Of works that end together the one that began first.
  Work finish();
  /// Counts the changes: next_end() stays what it is while this does.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }

 private:
  struct Running {
    Work work;
    double left = 0;  ///< seconds, if it were alone
    double speed = 1;
    std::array<double, kPools> draws{};
  };

  void advance(double now);
  void share();
  [[nodiscard]] double drawn_from_bus(std::int32_t stage) const;
  [[nodiscard]] std::size_t next() const;

  std::array<double, kPools> capacity_;
  std::vector<Running> running_;
  double now_ = 0;
  std::uint64_t version_ = 0;
};

}  // namespace stagecoach::plan
