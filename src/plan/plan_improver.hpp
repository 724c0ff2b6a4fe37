#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "plan/batch_choice.hpp"

namespace stagecoach::plan {

/// Steps that scoring a plan simulates, about.
std::int64_t steps_to_score(const PlanRequest& request, const BatchChoice& choice);

/// What the simulator says of plans, as long as steps are left. Keeps every plan it has scored.
class PlanScores {
 public:
  PlanScores(const PlanRequest& request, std::int64_t steps) : request_(request), left_(steps) {}

  /// The scored plan; none if it does not fit or no steps are left.
  std::optional<JobPlan> score(const JobPlan& plan);
  [[nodiscard]] bool exhausted() const noexcept { return left_ <= 0; }
  [[nodiscard]] const std::vector<JobPlan>& all() const noexcept { return all_; }

 private:
  const PlanRequest& request_;
  std::int64_t left_;
  std::vector<JobPlan> all_;
};

/// Whether the first plan is what is asked for rather than the second: soon enough, then faster.
bool better(const PlanRequest& request, const JobPlan& a, const JobPlan& b);

/// Changes one thing after the other, shares of tiers by some per cent or what `others` makes of a
/// plan, and keeps what is better by the simulator, until nothing is.
JobPlan improve(const PlanRequest& request, JobPlan plan, PlanScores& scores,
                const std::function<std::vector<JobPlan>(const JobPlan&)>& others);

}  // namespace stagecoach::plan
