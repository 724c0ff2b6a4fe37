#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "plan/batch_choice.hpp"

namespace stagecoach::plan {

/// The best placement of one stage.
struct StageChoice {
  Fractions fractions;
  double visit_seconds = 0;
  std::int64_t weight_buffers = 0;  ///< as Policy has it
};

/// Best placements of a job's stages by linear programs, one for each regime, kept once they are
/// known. Stages that are alike are solved once.
class StageChoices {
 public:
  /// All must outlive this.
  StageChoices(const PlanRequest& request, const BatchChoice& choice, Solver& solver);

  /// Of stage `stage` with so many layers; none if none fits. By rough regimes.
  const std::optional<StageChoice>& best(std::size_t stage, std::int64_t layers);
  /// Likewise, by all of them, in all but `spare` of its budgets.
  std::optional<StageChoice> exact(std::size_t stage, std::int64_t layers, double spare);
  /// What the placement is put into for the stage.
  [[nodiscard]] stage::Policy policy(std::size_t stage, const StageChoice& chosen) const;
  [[nodiscard]] const SteadyJob& steady() const noexcept { return steady_; }
  [[nodiscard]] std::int64_t programs_solved() const noexcept { return programs_; }

 private:
  [[nodiscard]] StageCase case_of(std::size_t stage, std::int64_t layers,
                                  std::int64_t weight_buffers) const;
  [[nodiscard]] std::size_t like(std::size_t stage) const;
  [[nodiscard]] bool knows_seconds(std::size_t stage, const TiersInUse& tiers,
                                   std::int64_t weight_buffers) const;
  const VisitSeconds& seconds_of(std::size_t stage, const TiersInUse& tiers,
                                 std::int64_t weight_buffers);
  /// How closely a stage is looked at.
  struct Look {
    bool rough = true;
    double spare = 0;
    auto operator<=>(const Look&) const = default;
  };
  std::optional<StageChoice> solve_all(std::size_t stage, std::int64_t layers, const Look& look);
  std::optional<StageChoice> solve_for(const StageCase& stage, std::size_t number,
                                       const TiersInUse& tiers, const Look& look);
  const std::optional<StageChoice>& look_at(std::size_t stage, std::int64_t layers,
                                            const Look& look);

  const PlanRequest& request_;
  const BatchChoice& choice_;
  Solver& solver_;
  SteadyJob steady_;
  stage::KvDemand demand_;
  std::vector<std::size_t> like_;
  std::map<std::tuple<std::size_t, std::int64_t, Look>, std::optional<StageChoice>> best_;
  std::map<std::tuple<std::size_t, int, std::int64_t>, VisitSeconds> seconds_;
  std::int64_t programs_ = 0;
};

/// Layers of each stage and where they lie.
struct PartitionChoice {
  std::vector<std::int64_t> layers;
  std::vector<StageChoice> stages;
  double slowest_seconds = 0;  ///< of a visit, on the stage where it takes longest
  double way_seconds = 0;      ///< of a visit through all of them and back
};

/// Begins with equal parts and moves layers from the slowest stage to the one that minds least,
/// until that does not help. None if no partition found so fits.
std::optional<PartitionChoice> best_partition(const PlanRequest& request, StageChoices& choices);

/// The policy of a stage of the request: its budgets and folder.
const stage::Policy& budget_of(const PlanRequest& request, std::size_t stage);
/// Tiers that a placement on the stage may use with weights in this format.
TiersInUse tiers_for(const PlanRequest& request, std::size_t stage,
                     const model::WeightFormat& weights);

}  // namespace stagecoach::plan
