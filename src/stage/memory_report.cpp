#include "stage/memory_report.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/units.hpp"
#include "offload/stage_weights.hpp"
#include "stage/memory_areas.hpp"

namespace stagecoach::stage {
namespace {

using offload::Tier;

std::size_t pinned_area_bytes(const StagePlan& plan, const Budgets& budgets) {
  std::size_t bytes = 0;
  for (const auto area : areas_to_pin(plan, budgets.pinned)) {
    bytes += bytes_of(area, plan);
  }
  return bytes;
}

MemoryReport report_memory(const StagePlan& plan, const Budgets& budgets,
                           const ScratchBytes& scratch) {
  using offload::StageWeights;
  const auto& contents = plan.shape.contents;
  const auto& cut = plan.weights.cut;
  MemoryReport report;
  report.budgets = budgets;
  report.kv_pages_per_layer = plan.kv.pools.total();
  const auto add = [&](Tier tier, const char* what, std::size_t bytes) {
    if (bytes > 0) {
      report.lines.push_back({tier, what, bytes});
    }
  };
  add(Tier::device, "weights", StageWeights::device_bytes(contents, cut));
  add(Tier::device, "tables and head",
      StageWeights::table_bytes(plan.shape.spec, contents, plan.shape.weights));
  add(Tier::device, "device scratch", scratch.device);
  add(Tier::cpu, "weights", StageWeights::cpu_bytes(contents, cut));
  add(Tier::cpu, "copies and results", scratch.device_in_dram);
  add(Tier::cpu, "scratch", plan.kv.offloaded() ? scratch.cpu : 0);
  add(Tier::cpu, "staging while loading", scratch.loading);
  for (const auto area : kAreas) {
    add(tier_of(area), name_of(area), bytes_of(area, plan));
  }
  report.pinned_bytes = pinned_area_bytes(plan, budgets);
  if (plan.weights.pinned) {
    report.pinned_bytes += StageWeights::cpu_bytes(contents, cut);
  }
  return report;
}

/// Pins weights where the policy and the budget say so; other areas than the cache come before
/// them.
void decide_pinning(StagePlan& plan, const Budgets& budgets) {
  const auto bytes = offload::StageWeights::cpu_bytes(plan.shape.contents, plan.weights.cut);
  auto left = budgets.pinned;
  for (const auto area : areas_to_pin(plan, budgets.pinned)) {
    left -= area == Area::kv_cpu ? 0 : bytes_of(area, plan);
  }
  const auto wish = plan.policy.pin_weights;
  if (wish == Switch::on && bytes > left) {
    throw OutOfMemory(fmt::format(
        "--pin-weights on: {} of weights in DRAM, but only {} may be pinned: raise --pinned-mem "
        "and 'ulimit -l', or use --pin-weights auto",
        format_bytes(bytes), format_bytes(left)));
  }
  plan.weights.pinned = bytes > 0 && wish != Switch::off && bytes <= left;
}

/// Makes plans that differ in pages and weight buffers only.
class Planner {
 public:
  Planner(const StageShape& shape, const Policy& policy, const PlanOptions& options,
          std::int64_t longest_pages, const Budgets& budgets, const ScratchBytes& scratch)
      : shape_(shape),
        policy_(policy),
        options_(options),
        longest_pages_(longest_pages),
        budgets_(budgets),
        scratch_(scratch) {}

  [[nodiscard]] PlannedStage make(std::int64_t pages, std::int64_t buffers) const {
    auto plan = make_plan(shape_, policy_, options_, longest_pages_, pages, buffers);
    decide_pinning(plan, budgets_);
    auto memory = report_memory(plan, budgets_, scratch_);
    return {std::move(plan), std::move(memory)};
  }

  /// As many pages as fit; none if not even the longest request does.
  [[nodiscard]] std::optional<PlannedStage> most_pages(std::int64_t wanted,
                                                       std::int64_t buffers) const {
    std::int64_t good = longest_pages_ - 1;
    std::int64_t bad = wanted + 1;
    while (bad - good > 1) {
      const auto middle = bad == wanted + 1 && good < longest_pages_ ? wanted : (good + bad) / 2;
      (make(middle, buffers).memory.fits() ? good : bad) = middle;
    }
    if (good < longest_pages_) {
      return std::nullopt;
    }
    return make(good, buffers);
  }

 private:
  const StageShape& shape_;
  const Policy& policy_;
  const PlanOptions& options_;
  std::int64_t longest_pages_;
  const Budgets& budgets_;
  const ScratchBytes& scratch_;
};

/// The least value of a flag that allows so much.
std::string flag_value(std::size_t bytes) {
  constexpr std::size_t kMebibyte = std::size_t{1} << 20;
  return fmt::format("{}MiB", (bytes + kMebibyte - 1) / kMebibyte);
}

const char* flag_of(Tier tier) {
  return tier == Tier::device ? "--device-mem" : tier == Tier::cpu ? "--cpu-mem" : "--disk-mem";
}

/// "device 1.20 GiB of 1.00 GiB (weights 900 MiB, KV cache 200 MiB, ...)".
std::string describe(const MemoryReport& report, Tier tier) {
  std::vector<MemoryLine> lines;
  std::copy_if(report.lines.begin(), report.lines.end(), std::back_inserter(lines),
               [&](const MemoryLine& line) { return line.tier == tier; });
  std::stable_sort(lines.begin(), lines.end(), [](const MemoryLine& a, const MemoryLine& b) {
    return a.size_bytes > b.size_bytes;
  });
  constexpr std::size_t kShown = 4;
  std::string parts;
  for (std::size_t i = 0; i < std::min(kShown, lines.size()); ++i) {
    parts += fmt::format("{}{} {}", i == 0 ? "" : ", ", lines[i].what,
                         format_bytes(lines[i].size_bytes));
  }
  return fmt::format("{} {} of {} ({})", to_string(tier), format_bytes(report.total_bytes(tier)),
                     format_bytes(report.budget_bytes(tier)), parts);
}

[[noreturn]] void refuse(const MemoryReport& least) {
  const auto dram = least.total_bytes(Tier::device) + least.total_bytes(Tier::cpu);
  const bool small_machine = least.budgets.together > 0 && dram > least.budgets.together;
  const bool small_disk = least.total_bytes(Tier::disk) > least.budgets.disk_free;
  std::string needs;
  std::string flags;
  for (const auto tier : offload::kTiers) {
    const bool over = least.total_bytes(tier) > least.budget_bytes(tier);
    const bool shared = small_machine && tier != Tier::disk;
    const bool short_of_disk = small_disk && tier == Tier::disk;
    if (over || shared) {
      needs += (needs.empty() ? "" : "; ") + describe(least, tier);
    }
    if (over && !shared && !short_of_disk) {
      flags += fmt::format("{}{} {}", flags.empty() ? "" : " ", flag_of(tier),
                           flag_value(least.total_bytes(tier)));
    }
  }
  if (small_machine) {
    needs += fmt::format("; device and cpu together {} of {}", format_bytes(dram),
                         format_bytes(least.budgets.together));
  }
  std::vector<std::string> remedies;
  if (small_machine) {
    remedies.emplace_back("more memory");
  }
  if (small_disk) {
    remedies.emplace_back("more disk space (another --offload-dir)");
  }
  if (!flags.empty()) {
    remedies.push_back(flags);
  }
  throw OutOfMemory(fmt::format(
      "the job does not fit, needed at least: {}; {} would do, or move shares to another tier with "
      "--percent, use more stages, or a smaller --gpu-batch-size or --prefill-piece",
      needs, fmt::join(remedies, " and ")));
}

}  // namespace

std::size_t MemoryReport::total_bytes(Tier tier) const {
  std::size_t total = 0;
  for (const auto& line : lines) {
    total += line.tier == tier ? line.size_bytes : 0;
  }
  return total;
}

std::size_t MemoryReport::budget_bytes(Tier tier) const {
  return tier == Tier::device ? budgets.device : tier == Tier::cpu ? budgets.cpu : budgets.disk;
}

bool MemoryReport::fits() const {
  const auto device = total_bytes(Tier::device);
  const auto cpu = total_bytes(Tier::cpu);
  return device <= budgets.device && cpu <= budgets.cpu &&
         total_bytes(Tier::disk) <= budgets.disk &&
         (budgets.together == 0 || device + cpu <= budgets.together);
}

PlannedStage plan_stage(const StageShape& shape, const Policy& policy, const PlanOptions& options,
                        const KvDemand& demand, const Budgets& budgets,
                        const ScratchBytes& scratch) {
  const Planner planner(shape, policy, options, demand.longest_pages, budgets, scratch);
  if (policy.weight_buffers > 0) {
    if (auto planned = planner.most_pages(demand.wanted_pages, policy.weight_buffers)) {
      return *std::move(planned);
    }
    refuse(planner.make(demand.longest_pages, policy.weight_buffers).memory);
  }
  if (auto roomy = planner.make(demand.wanted_pages, 3); roomy.memory.fits()) {
    return roomy;
  }
  for (const std::int64_t buffers : {2, 1}) {
    if (auto planned = planner.most_pages(demand.wanted_pages, buffers)) {
      return *std::move(planned);
    }
  }
  refuse(planner.make(demand.longest_pages, 1).memory);
}

PlannedStage plan_with_pages(const PlannedStage& stage, const KvDemand& demand,
                             std::int64_t kv_pages_per_layer, const ScratchBytes& scratch) {
  const auto& plan = stage.plan;
  const PlanOptions options{.schedule = plan.schedule,
                            .overlap = plan.overlap,
                            .direct = plan.direct,
                            .wire_on_device = plan.wire_on_device,
                            .pin_copied = plan.pin_copied,
                            .packed_product_rows = plan.weights.packed_product_rows};
  const Planner planner(plan.shape, plan.policy, options, demand.longest_pages,
                        stage.memory.budgets, scratch);
  return planner.make(kv_pages_per_layer, plan.weights.buffers);
}

std::string format_report(const MemoryReport& report) {
  std::string text;
  for (const auto tier : offload::kTiers) {
    if (report.total_bytes(tier) == 0) {
      continue;
    }
    text += fmt::format("  {}\n", to_string(tier));
    for (const auto& line : report.lines) {
      if (line.tier == tier) {
        text += fmt::format("    {:<24}{:>12}\n", line.what, format_bytes(line.size_bytes));
      }
    }
    text += fmt::format("    {:<24}{:>12} of {}\n", "total", format_bytes(report.total_bytes(tier)),
                        format_bytes(report.budget_bytes(tier)));
    if (tier == Tier::cpu && report.pinned_bytes > 0) {
      text += fmt::format("    {:<24}{:>12} of {}\n", "of it pinned",
                          format_bytes(report.pinned_bytes), format_bytes(report.budgets.pinned));
    }
  }
  return text;
}

}  // namespace stagecoach::stage
