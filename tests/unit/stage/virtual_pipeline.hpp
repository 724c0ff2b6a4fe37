#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stage/batcher.hpp"
#include "stage/schedule.hpp"

namespace stagecoach::testing {

/// How long things take in a virtual pipeline, in any unit.
struct VirtualCosts {
  std::function<double(const stage::Step&)> work;  ///< of a step that is not on the wire
  double wire = 0;                                 ///< hidden states from a stage to the next
  double token_return = 0;                         ///< tokens from the last stage to the first
};

/// When a stage computed.
struct ComputeSpan {
  std::int64_t visit = 0;
  double start = 0;
  double end = 0;
};

struct VirtualStage {
  std::vector<stage::Step> steps;  ///< all that were issued, in order
  std::vector<ComputeSpan> computed;
  stage::StagePlan plan;

  /// Time spent computing, and time between the first step and the end of the last of `visits`
  /// first visits in which nothing was computed.
  [[nodiscard]] double busy(std::int64_t visits) const;
  [[nodiscard]] double idle(std::int64_t visits) const;
};

/// The stages of a virtual pipeline, all with one policy.
struct VirtualStages {
  model::ModelSpec spec;
  int stages = 1;
  stage::BatchShape shape;
  std::int64_t page_capacity = 100000;
  stage::Policy policy{};
  stage::PlanOptions options{};
  std::int64_t weight_buffers = 2;
  model::WeightFormat weights{};
};

struct VirtualRun {
  std::vector<VirtualStage> stages;
  std::vector<stage::Visit> visits;
  double end = 0;
};

/// Runs a job with a clock instead of threads: the real Batcher and the real Schedulers, sequences
/// of the given lengths that end only when they have all their tokens. `steps` run when their
/// resource is free and their waits are over, as the engine would have it.
VirtualRun run_virtual_pipeline(const VirtualStages& stages,
                                const std::vector<std::int64_t>& prompt_lengths,
                                const std::vector<std::int64_t>& new_tokens,
                                const VirtualCosts& costs);

}  // namespace stagecoach::testing
