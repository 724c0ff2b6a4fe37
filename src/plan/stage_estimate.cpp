#include "plan/stage_estimate.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "device/cuda/operation_bytes.hpp"
#include "device/cuda/packed_product_rows.hpp"
#include "device/host/scratch_sizes.hpp"
#include "offload/stage_weights.hpp"
#include "stage/setup_rules.hpp"

namespace stagecoach::plan {
namespace {

std::size_t or_else(std::size_t bytes, std::size_t otherwise) {
  return bytes > 0 ? bytes : otherwise;
}

/// The lengths that the batcher goes by (see stage::SequenceInput).
stage::JobDemand job_demand(const Workload& requests, const stage::BatchShape& batch) {
  std::vector<stage::SequenceLength> lengths;
  lengths.reserve(requests.size());
  for (const auto& request : requests) {
    lengths.push_back({.fed_prompt = request.prompt - (request.generated == 0 ? 1 : 0),
                       .stored_tokens = request.prompt + request.generated - 1});
  }
  return stage::demand_of(lengths, batch);
}

/// What a GPU's operations have in DRAM comes out of what may be pinned.
stage::Budgets budgets_beside(const NodeProfile& profile, const stage::Policy& policy,
                              const stage::ScratchBytes& scratch) {
  auto budgets = budgets_for(profile, policy);
  budgets.pinned -= std::min(budgets.pinned, scratch.device_in_dram);
  return budgets;
}

stage::PlannedStage plan_one(const stage::StageShape& shape, const stage::Policy& policy,
                             const NodeProfile& profile, const stage::PlanOptions& options,
                             const stage::KvDemand& demand, std::size_t number) try {
  const auto scratch = scratch_for(profile, shape, demand.longest_pages);
  return stage::plan_stage(shape, policy, options, demand, budgets_beside(profile, policy, scratch),
                           scratch);
} catch (const OutOfMemory& error) {
  throw OutOfMemory(fmt::format("stage {}: {}", number, error.what()));
}

}  // namespace

stage::ScratchBytes scratch_for(const NodeProfile& profile, const stage::StageShape& shape,
                                std::int64_t longest_pages) {
  const auto sizes = stage::scratch_shape(shape, longest_pages);
  const auto host = device::host_scratch_bytes(sizes, profile.threads);
  return {.device = profile.gpu ? device::cuda::scratch_bytes(sizes) : host,
          .device_in_dram = profile.gpu ? device::cuda::host_scratch_bytes(sizes) : 0,
          .cpu = host,
          .loading = offload::StageWeights::staging_bytes(stage::kReaderThreads)};
}

stage::Budgets budgets_for(const NodeProfile& profile, const stage::Policy& policy) {
  stage::Budgets budgets;
  budgets.cpu = or_else(policy.cpu_mem_bytes, profile.cpu_mem_bytes);
  if (profile.gpu) {
    budgets.device = or_else(policy.device_mem_bytes, profile.device_mem_bytes);
  } else {
    // The device's memory is the machine's DRAM.
    budgets.together =
        std::max(profile.cpu_mem_bytes, policy.device_mem_bytes + policy.cpu_mem_bytes);
    budgets.device = or_else(policy.device_mem_bytes, budgets.together);
  }
  budgets.pinned =
      std::min(or_else(policy.pinned_mem_bytes, budgets.cpu), profile.pinned_mem_bytes);
  budgets.disk = or_else(policy.disk_mem_bytes, profile.disk_mem_bytes);
  budgets.disk_free = std::max(profile.disk_mem_bytes, budgets.disk);
  return budgets;
}

stage::PlanOptions options_for(const NodeProfile& profile, stage::ScheduleKind schedule,
                               bool overlap) {
  stage::PlanOptions options;
  options.schedule = schedule;
  options.overlap = overlap;
  options.direct = !profile.gpu;
  options.pin_copied = profile.gpu;
  if (profile.gpu) {
    options.packed_product_rows = device::cuda::kPackedProductRows;
  }
  return options;
}

stage::KvDemand demand_for(const Workload& requests, const stage::BatchShape& batch) {
  return job_demand(requests, batch).kv;
}

std::vector<stage::PlannedStage> plan_stages(const std::vector<stage::StageShape>& shapes,
                                             const std::vector<stage::Policy>& policies,
                                             const Cluster& cluster, const Workload& requests,
                                             stage::ScheduleKind schedule, bool overlap) {
  STAGECOACH_CHECK(!shapes.empty() && shapes.size() == cluster.stages(), "{} shapes, {} stages",
                   shapes.size(), cluster.stages());
  const auto demand = job_demand(requests, shapes.front().batch);
  std::vector<stage::PlannedStage> stages;
  auto pages = std::numeric_limits<std::int64_t>::max();
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    auto shape = shapes[k];
    shape.batch.longest_prompt = demand.longest_prompt;
    const auto& profile = cluster.of_stage(k);
    const auto& policy = policies.size() == 1 ? policies.front() : policies.at(k);
    stages.push_back(
        plan_one(shape, policy, profile, options_for(profile, schedule, overlap), demand.kv, k));
    pages = std::min(pages, stages.back().memory.kv_pages_per_layer);
  }
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    const auto scratch =
        scratch_for(cluster.of_stage(k), stages[k].plan.shape, demand.kv.longest_pages);
    stages[k] = stage::plan_with_pages(stages[k], demand.kv, pages, scratch);
  }
  return stages;
}

}  // namespace stagecoach::plan
