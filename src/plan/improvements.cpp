#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "plan/explain.hpp"

namespace stagecoach::plan {
namespace {

/// Of the search for the plan itself: a gain need not be exact.
constexpr std::int64_t kLessEffort = 4;

/// What the best plan of a changed request reaches, or the given one where it still serves; nothing
/// if neither does.
void add(std::vector<Improvement>& improvements, const std::string& what, PlanRequest request,
         const JobPlan& plan) {
  double best = 0;
  const auto take = [&](auto&& find) {
    try {
      best = std::max(best, find());
    } catch (const Error&) {  // no plan, or a profile that does not know the format
    }
  };
  request.most_steps /= kLessEffort;
  take([&] { return plan_job(request).best.front().tokens_per_second; });
  if (plan.policies.size() == request.cluster.stages()) {
    take([&] { return score(request, plan).tokens_per_second; });
  }
  if (best > 0) {
    improvements.push_back({what, best});
  }
}

PlanRequest with_more_dram(PlanRequest request) {
  for (auto& node : request.cluster.nodes) {
    node.cpu_mem_bytes *= 2;
    node.pinned_mem_bytes *= 2;
  }
  for (auto& policy : request.budgets) {
    policy.cpu_mem_bytes *= 2;
    policy.pinned_mem_bytes *= 2;
  }
  return request;
}

PlanRequest with_faster_disks(PlanRequest request) {
  for (auto& node : request.cluster.nodes) {
    if (!node.disk.read.empty()) {
      node.disk.read = node.disk.read.scaled(2);
      node.disk.write = node.disk.write.scaled(2);
      node.disk.together *= 2;
    }
  }
  return request;
}

bool allows_int4(const PlanRequest& request) {
  const auto packed = [](const auto& format) { return format.packed(); };
  return packed(request.weights) ||
         (std::any_of(request.allowed_weights.begin(), request.allowed_weights.end(), packed) &&
          std::any_of(request.allowed_caches.begin(), request.allowed_caches.end(), packed));
}

PlanRequest with_int4(PlanRequest request) {
  request.allowed_weights.push_back({.layers = {Packing::int4, 64}});
  request.allowed_caches.emplace_back(device::KvType::int4);
  return request;
}

/// One more stage on a node of its own, like the last.
PlanRequest with_a_stage(PlanRequest request) {
  auto& cluster = request.cluster;
  cluster.nodes.push_back(cluster.of_stage(cluster.stages() - 1));
  cluster.node_of_stage.push_back(cluster.nodes.size() - 1);
  if (request.budgets.size() > 1) {
    request.budgets.push_back(request.budgets.back());
  }
  return request;
}

}  // namespace

std::vector<Improvement> improvements(const PlanRequest& request, const JobPlan& plan) {
  const auto& nodes = request.cluster.nodes;
  std::vector<Improvement> improvements;
  add(improvements, "twice the DRAM", with_more_dram(request), plan);
  if (std::any_of(nodes.begin(), nodes.end(),
                  [](const auto& node) { return !node.disk.read.empty(); })) {
    add(improvements, "a disk twice as fast", with_faster_disks(request), plan);
  }
  if (!allows_int4(request)) {
    add(improvements, "int4 weights and cache", with_int4(request), plan);
  }
  if (static_cast<std::int64_t>(request.cluster.stages()) < request.spec.layers) {
    add(improvements, "one more stage", with_a_stage(request), plan);
  }
  return improvements;
}

}  // namespace stagecoach::plan
