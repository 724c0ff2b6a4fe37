#pragma once

#include <cstdint>
#include <vector>

#include "plan/stage_program.hpp"
#include "stage/stage_plan.hpp"

namespace stagecoach::plan {

/// What a stage's visits look like while a job runs evenly: the average over prompt and decoding.
struct SteadyVisit {
  std::int64_t prompt_rows = 0;      ///< of a piece
  std::int64_t prompts = 1;          ///< sequences that bring them
  std::int64_t prompt_position = 0;  ///< tokens of these prompts that came before, on average
  std::int64_t decoding = 0;         ///< sequences that bring one row
  std::int64_t decode_position = 0;  ///< tokens that they have, on average
  double share = 1;                  ///< of all visits that are like this one
};

/// What a stage is linearized for.
struct StageCase {
  stage::StageShape shape;
  stage::Policy policy;  ///< all but its percent
  const NodeProfile& profile;
  stage::PlanOptions options;
  stage::KvDemand demand;
  LinkRates link;                   ///< to the next stage
  std::vector<SteadyVisit> visits;  ///< their shares sum to 1
};

/// The regimes of placements that use no more than `tiers`.
std::vector<Regime> regimes_of(const StageCase& stage, const TiersInUse& tiers);
/// A few in their place, for a first look: where buffers for pages are full, and taken to be so
/// everywhere, so that what fits does fit.
std::vector<Regime> rough_regimes_of(const StageCase& stage, const TiersInUse& tiers);

/// Seconds of a visit of a stage with any number of layers, found by scheduling the visits at a few
/// placements with the engine's own functions: all weights, or all of the cache, on one tier each.
/// So the bytes are the engine's.
class VisitSeconds {
 public:
  /// `tiers`: of which the seconds are needed; activations where they say. ConfigError where the
  /// profile lacks what the plan uses.
  VisitSeconds(const StageCase& stage, const TiersInUse& tiers);

  /// Sets the seconds and pools of a stage with so many layers.
  void fill(LinearStage& stage, std::int64_t layers) const;

 private:
  static constexpr std::size_t kTimes = stage::kResources + kPools + 1;  // and the chain
  using Times = std::array<double, kTimes>;
  struct Costs {
    Times all{};
    Times layer{};  ///< of one in between
  };

  [[nodiscard]] static Costs costs_at(const StageCase& stage, const Fractions& fractions,
                                      std::int64_t layers);

  Times layer_{};  ///< everything on the device: of each layer, and of what a stage does once
  Times once_{};
  std::array<Times, 6> beyond_{};  ///< what all weights or pages on a tier take more, a layer
};

/// Bytes of each tier of a stage whose placement is within `regime`, found by planning it at a few
/// placements there.
void fill_memory(LinearStage& linear, const StageCase& stage, const Regime& regime);

/// Both, for one regime.
LinearStage linearize(const StageCase& stage, const Regime& regime);

}  // namespace stagecoach::plan
