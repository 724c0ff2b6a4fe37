#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "job/eval_report.hpp"
#include "job/progress.hpp"
#include "job/whole_job.hpp"
#include "offload/tier.hpp"
#include "stage/engine.hpp"
#include "stage/memory_report.hpp"

namespace stagecoach::job {

/// What one stage took, and what it still holds at the end of a run.
struct StageReport {
  stage::MemoryReport memory;      ///< as planned, with the budgets
  stage::EngineTotals totals;      ///< what was moved
  offload::TierCounts peak_bytes;  ///< taken of each tier at once, at most
  std::int64_t live_pages = 0;     ///< KV pages a layer that were not given back
  std::int64_t open_pages = 0;     ///< places of disk pages being filled, likewise
};

struct RunReport {
  RunTotals totals;                 ///< known to rank 0
  std::optional<EvalReport> eval;   ///< of an `eval`; known to rank 0
  std::vector<StageReport> stages;  ///< of all stages from run_loopback, of its own from run_rank
  std::optional<WholeJob> whole;    ///< if the configuration asks; known to rank 0
};

}  // namespace stagecoach::job
