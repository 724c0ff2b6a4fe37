#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "plan/cluster.hpp"
#include "stage/memory_report.hpp"

namespace stagecoach::plan {

/// Memory that the device and loading take, as job::StageSetup has it, for a machine that is not
/// here. `threads`: of the host's operations.
stage::ScratchBytes scratch_for(const NodeProfile& profile, const stage::StageShape& shape,
                                std::int64_t longest_pages);

/// What a stage of this node may take, by the profile; where the policy gives numbers, by these.
stage::Budgets budgets_for(const NodeProfile& profile, const stage::Policy& policy);

/// PlanOptions of a stage on such a node.
stage::PlanOptions options_for(const NodeProfile& profile, stage::ScheduleKind schedule,
                               bool overlap);

/// KV pages that a workload asks of each stage (as job::demand_of).
stage::KvDemand demand_for(const Workload& requests, const stage::BatchShape& batch);

/// Every stage planned as job::Rank does it: each with as many pages as fit, then all with the
/// smallest number. OutOfMemory names the stage.
std::vector<stage::PlannedStage> plan_stages(const std::vector<stage::StageShape>& shapes,
                                             const std::vector<stage::Policy>& policies,
                                             const Cluster& cluster, const Workload& requests,
                                             stage::ScheduleKind schedule, bool overlap);

}  // namespace stagecoach::plan
