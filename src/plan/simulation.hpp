#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/cluster.hpp"
#include "stage/memory_report.hpp"
#include "stage/stage_plan.hpp"
#include "stage/step.hpp"

namespace stagecoach::plan {

/// One step of a simulated run, for a trace.
struct TracedStep {
  std::int32_t stage = 0;
  stage::StepKind kind{};
  stage::Resource resource{};
  std::int64_t visit = 0;
  std::int32_t layer = -1;
  std::int32_t gpu_batch = -1;
  double start_seconds = 0;
  double end_seconds = 0;
};

struct SimulationOptions {
  bool trace = false;
  /// Layers of a stage that are simulated at most, each standing for as many as are left out: some
  /// times faster, and off by a per cent or two, for transfers come in larger pieces. 0: all.
  std::int64_t most_layers = 0;
};

/// What a stage did in a simulated run.
struct StageUse {
  std::array<double, stage::kResources> busy_seconds{};
  std::array<double, stage::kResources> bytes{};
  double first_compute_seconds = 0;  ///< when it began to compute
  double last_compute_seconds = 0;   ///< when it ended
  std::int64_t visits = 0;
  std::int64_t peak_pages = 0;  ///< KV pages a layer that were live at once

  /// Time between these in which nothing was computed.
  [[nodiscard]] double bubble_seconds() const;
};

struct SimulationResult {
  double seconds = 0;          ///< from the first visit to the last token
  double prefill_seconds = 0;  ///< until every request had its first token
  std::int64_t prompt_tokens = 0;
  std::int64_t generated_tokens = 0;
  double mean_latency_seconds = 0;  ///< of a request, from its first visit to its last token
  double max_latency_seconds = 0;
  std::vector<StageUse> stages;
  std::vector<TracedStep> trace;

  [[nodiscard]] double tokens_per_second() const {
    return static_cast<double>(generated_tokens) / seconds;
  }
  /// Tokens after the first ones, by the time after prefill (the paper's figure).
  [[nodiscard]] double decode_tokens_per_second(std::int64_t requests) const;
};

/// Runs a job under a virtual clock: the Batcher and the Schedulers of a real run, with the cost
/// model in place of the machine. Steps that run at the same time share cores, DRAM and disk of
/// their node in proportion to what they draw. Requests end when they have all their tokens.
///
/// `plans`: of each stage, in order, with one batch shape. `kv_pages_per_layer` as all stages have
/// it. Deterministic. ConfigError if a request needs more pages than there are.
SimulationResult simulate(const std::vector<stage::StagePlan>& plans, const Cluster& cluster,
                          const Workload& requests, std::int64_t kv_pages_per_layer,
                          const SimulationOptions& options = {});

}  // namespace stagecoach::plan
