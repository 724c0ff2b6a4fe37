#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plan/cost_model.hpp"
#include "stage/memory_report.hpp"

namespace stagecoach::plan {

/// The nine fractions: weights, cache and activations on device, CPU and disk.
struct Fractions {
  std::array<double, 3> weights{1, 0, 0};
  std::array<double, 3> cache{1, 0, 0};
  std::array<double, 3> hidden{1, 0, 0};
};
/// To a thousandth of a per cent, each pair within 100.
stage::Percent to_percent(const Fractions& fractions);
Fractions to_fractions(const stage::Percent& percent);

/// Which tiers a placement may use beside the device's; which of them it does decides what buffers
/// a stage has. Activations lie all in one tier: on disk, on the CPU, or on the device.
struct TiersInUse {
  bool weights_cpu = false, weights_disk = false;
  bool cache_cpu = false, cache_disk = false;
  bool hidden_cpu = false, hidden_disk = false;

  [[nodiscard]] bool weights() const { return weights_cpu || weights_disk; }
  [[nodiscard]] bool cache() const { return cache_cpu || cache_disk; }
  friend bool operator==(const TiersInUse&, const TiersInUse&) = default;
};

struct Range {
  double low = 0;
  double high = 1;
};

/// Placements between which what a stage takes is linear. Buffers for pages hold as many as a GPU
/// batch has, but no more than there are: so the cache's shares are cut where one of the two begins
/// to hold.
struct Regime {
  TiersInUse tiers;
  Range cache_outside;  ///< the device
  Range cache_disk;
};

/// Seconds of a visit on each resource, and bytes of each tier, as linear functions of the
/// fractions.
struct LinearStage {
  struct Linear {
    double constant = 0;
    std::array<double, 9> by_fraction{};  ///< weights, cache, hidden; each device, cpu, disk
    [[nodiscard]] double at(const Fractions& fractions) const;
  };
  std::array<Linear, stage::kResources> seconds;  ///< a resource of the stage
  std::array<Linear, kPools> pools;    ///< seconds that a pool is in use, at its capacity
  Linear chain;                        ///< steps of one GPU batch that wait for each other
  std::array<Linear, 3> memory_bytes;  ///< a tier
  stage::Budgets budgets;
  bool overlap = true;  ///< resources work at the same time
  Regime regime;        ///< where memory_bytes holds

  /// Of a visit: the largest resource's or pool's seconds, or without overlap the sum of them.
  [[nodiscard]] double visit_seconds(const Fractions& fractions) const;
  [[nodiscard]] bool fits(const Fractions& fractions) const;
  /// False if, one tier at a time, there is a budget that no fractions keep.
  [[nodiscard]] bool may_fit() const;
};

/// The answer of a linear program.
struct ProgramResult {
  Fractions fractions;
  double visit_seconds = 0;
};

/// Solves programs one after the other; making one costs more than solving many.
class Solver {
 public:
  Solver();
  ~Solver();
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;
  Solver(Solver&&) = delete;
  Solver& operator=(Solver&&) = delete;

  /// See plan::solve.
  std::optional<ProgramResult> solve(const LinearStage& stage);

 private:
  struct Model;
  std::unique_ptr<Model> model_;
};

/// Minimizes the time of a visit (CLP) subject to the budgets and within the stage's regime. Of
/// placements that take the same time, one that moves less. None if no placement fits.
std::optional<ProgramResult> solve(const LinearStage& stage);

}  // namespace stagecoach::plan
