#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/cost_model.hpp"
#include "stage/memory_report.hpp"

namespace stagecoach::plan {

/// What a stage's visits look like while a job runs evenly: the average over prompt and decoding.
struct SteadyVisit {
  std::int64_t prompt_rows = 0;      ///< of a piece
  std::int64_t prompt_position = 0;  ///< tokens of these prompts that came before, on average
  std::int64_t decoding = 0;         ///< sequences that bring one row
  std::int64_t decode_position = 0;  ///< tokens that they have, on average
  double generated_tokens = 0;       ///< that a visit gives, first tokens included
};

/// The nine fractions: weights, cache and activations on device, CPU and disk.
struct Fractions {
  std::array<double, 3> weights{1, 0, 0};
  std::array<double, 3> cache{1, 0, 0};
  std::array<double, 3> hidden{1, 0, 0};
};
stage::Percent to_percent(const Fractions& fractions);

/// Seconds of a visit on each resource, and bytes of each tier, as linear functions of the
/// fractions: found by planning and scheduling a steady visit at a few placements with the engine's
/// own functions, so bytes and memory are the engine's.
struct LinearStage {
  struct Linear {
    double constant = 0;
    std::array<double, 9> by_fraction{};  ///< weights, cache, hidden; each device, cpu, disk
    [[nodiscard]] double at(const Fractions& fractions) const;
  };
  std::array<Linear, stage::kResources> seconds;  ///< a resource of the stage
  std::array<Linear, kPools> pools;    ///< seconds that a pool is in use, at its capacity
  std::array<Linear, 3> memory_bytes;  ///< a tier
  stage::Budgets budgets;
};

/// Which tiers a placement may use; which of them it does decides what buffers a stage has.
struct TiersInUse {
  bool weights_cpu = false, weights_disk = false;
  bool cache_cpu = false, cache_disk = false;
  bool hidden_cpu = false, hidden_disk = false;
};

/// What a linear program was made for and its answer.
struct ProgramResult {
  Fractions fractions;
  double visit_seconds = 0;  ///< the largest resource's
};

/// Linear functions of one stage whose placement uses exactly these tiers.
LinearStage linearize(const stage::StageShape& shape, const stage::Policy& policy,
                      const NodeProfile& profile, const stage::PlanOptions& options,
                      const stage::KvDemand& demand, const SteadyVisit& visit,
                      const TiersInUse& tiers);

/// Minimizes the time of a visit (CLP): the largest of the resources' seconds, subject to the
/// budgets. None if no placement fits.
std::optional<ProgramResult> solve(const LinearStage& stage, const TiersInUse& tiers);

}  // namespace stagecoach::plan
