#pragma once

#include <cstdint>
#include <vector>

#include "comm/transport.hpp"
#include "job/config.hpp"
#include "job/request.hpp"
#include "stage/engine.hpp"
#include "stage/stage_plan.hpp"

namespace stagecoach::job {

/// Tokens of one request.
struct RequestSize {
  std::int64_t prompt = 0;
  std::int64_t max_new = 0;
};

/// A job as it was run on all stages: what a prediction is made of, and what it is compared with.
struct WholeJob {
  std::vector<stage::StagePlan> plans;      ///< of each stage
  std::vector<stage::EngineTotals> totals;  ///< likewise
  std::vector<RequestSize> requests;
  std::int64_t longest_pages = 0;
  std::int64_t kv_pages_per_layer = 0;
};

std::vector<RequestSize> sizes_of(const std::vector<Request>& requests);

/// Every rank calls it with its own plan and totals; rank 0 gets plans and totals of all.
void gather_stages(comm::Transport& transport, const JobConfig& config,
                   const stage::StagePlan& plan, const stage::EngineTotals& totals,
                   WholeJob& whole);

}  // namespace stagecoach::job
