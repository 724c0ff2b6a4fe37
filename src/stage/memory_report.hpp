#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "stage/stage_plan.hpp"

namespace stagecoach::stage {

/// What a job needs of its KV cache, from its requests.
struct KvDemand {
  std::int64_t longest_pages = 0;  ///< pages a layer of the longest request: the least that runs
  std::int64_t wanted_pages = 0;   ///< pages a layer with every place taken by the longest ones
};

/// Most bytes that a stage may take of each tier.
struct Budgets {
  std::size_t device = 0;
  std::size_t cpu = 0;
  std::size_t disk = 0;
  std::size_t pinned = 0;  ///< part of `cpu` that may be locked in DRAM
  /// Where the device's memory is the machine's DRAM: of device and CPU together; else 0.
  std::size_t together = 0;
  /// What the disk has: no flag allows more.
  std::size_t disk_free = std::numeric_limits<std::size_t>::max();
};

/// Memory that is not the plan's: of the device's operations, what they have in DRAM, of those on
/// the CPU, and of loading.
struct ScratchBytes {
  std::size_t device = 0;
  std::size_t device_in_dram = 0;
  std::size_t cpu = 0;
  std::size_t loading = 0;
};

struct MemoryLine {
  offload::Tier tier = offload::Tier::device;
  std::string what;
  std::size_t size_bytes = 0;
};

/// Every byte that a stage takes of every tier, known before the first is taken.
struct MemoryReport {
  std::vector<MemoryLine> lines;
  Budgets budgets;
  std::size_t pinned_bytes = 0;         ///< of the CPU's
  std::int64_t kv_pages_per_layer = 0;  ///< that fit, at most those wanted

  [[nodiscard]] std::size_t total_bytes(offload::Tier tier) const;
  [[nodiscard]] std::size_t budget_bytes(offload::Tier tier) const;
  [[nodiscard]] bool fits() const;
};

struct PlannedStage {
  StagePlan plan;
  MemoryReport memory;
};

/// The plan of a stage with as many KV pages as the budgets allow, at most those wanted, and as
/// many weight buffers: 3 if all wanted pages fit beside them, else 2, else 1 (unless the policy
/// says). OutOfMemory, with the numbers and the flags that would make it fit, if not even the
/// longest request fits.
PlannedStage plan_stage(const StageShape& shape, const Policy& policy, const PlanOptions& options,
                        const KvDemand& demand, const Budgets& budgets,
                        const ScratchBytes& scratch);

/// The same with fewer pages: after the stages have agreed on the smallest number.
PlannedStage plan_with_pages(const PlannedStage& stage, const KvDemand& demand,
                             std::int64_t kv_pages_per_layer, const ScratchBytes& scratch);

/// A table, one line an entry, with total and budget of each tier that is used.
std::string format_report(const MemoryReport& report);

}  // namespace stagecoach::stage
