#include "cli/job_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "plan/explain.hpp"

namespace stagecoach::cli {
namespace {

using offload::Tier;

/// A budget that nobody gave: what is taken, and a little for what differs between the machine and
/// its profile. A job that takes less than there is must not insist on all of it.
std::size_t settled_budget(const stage::MemoryReport& memory, Tier tier) {
  constexpr std::size_t kSpareBytes = std::size_t{32} << 20;
  const auto taken = memory.total_bytes(tier);
  auto most = memory.budget_bytes(tier);
  if (memory.budgets.together > 0 && tier != Tier::disk) {
    const auto both = memory.total_bytes(Tier::device) + memory.total_bytes(Tier::cpu);
    most = taken + (memory.budgets.together - std::min(memory.budgets.together, both)) / 2;
  }
  return std::min(most, taken + taken / 50 + kSpareBytes);
}

void settle_budgets(const stage::MemoryReport& memory, stage::Policy& policy) {
  const auto settle = [&](std::size_t& bytes, Tier tier) {
    if (bytes == 0) {
      bytes = settled_budget(memory, tier);
    }
  };
  settle(policy.device_mem_bytes, Tier::device);
  settle(policy.cpu_mem_bytes, Tier::cpu);
  if (memory.total_bytes(Tier::disk) > 0) {
    settle(policy.disk_mem_bytes, Tier::disk);
  }
}

std::string commented(const std::string& text) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    out += "# " + line + "\n";
  }
  return out;
}

std::string format_formats(const plan::JobPlan& plan, const model::WeightFormat& stored) {
  std::string text;
  const bool packs = plan.weights != stored;
  if (packs) {
    text += fmt::format("compress-weights = {}\ncompress-group = {}\ncompress-embeddings = {}\n",
                        to_string(plan.weights.layers.packing), plan.weights.layers.group,
                        plan.weights.embeddings);
  }
  const auto& cache = plan.batch.kv_format;
  if (cache.packed()) {
    text += fmt::format("compress-cache = {}\n", to_string(cache.pack().packing));
    text += packs ? "" : fmt::format("compress-group = {}\n", cache.group);
  } else if (cache.type == device::KvType::f32) {
    text += "kv-dtype = f32\n";
  }
  if (plan.batch.attention_sparsity < 1) {
    text += fmt::format("attention-sparsity = {}\n", plan.batch.attention_sparsity);
  }
  return text;
}

std::string format_policy(const stage::Policy& policy) {
  auto text = fmt::format("percent = {}\n", stage::format_percent(policy.percent));
  const auto add_bytes = [&](const char* key, std::size_t bytes) {
    text += bytes > 0 ? fmt::format("{} = {}\n", key, bytes) : "";
  };
  add_bytes("device-mem", policy.device_mem_bytes);
  add_bytes("cpu-mem", policy.cpu_mem_bytes);
  add_bytes("pinned-mem", policy.pinned_mem_bytes);
  add_bytes("disk-mem", policy.disk_mem_bytes);
  if (!policy.offload_dir.empty()) {
    text += fmt::format("offload-dir = {}\n", policy.offload_dir);
  }
  const auto add_switch = [&](const char* key, stage::Switch value) {
    if (value != stage::Switch::automatic) {
      text += fmt::format("{} = {}\n", key, value == stage::Switch::on ? "on" : "off");
    }
  };
  add_switch("pin-weights", policy.pin_weights);
  add_switch("cpu-attention", policy.cpu_attention);
  add_switch("widen-weights", policy.widen_weights);
  if (policy.weight_buffers > 0) {
    text += fmt::format("weight-buffers = {}\n", policy.weight_buffers);
  }
  return text;
}

}  // namespace

std::vector<stage::Policy> settled_policies(const plan::JobPlan& plan) {
  std::vector<stage::Policy> policies;
  for (const auto& stage : plan.stages) {
    auto policy = stage.plan.policy;
    settle_budgets(stage.memory, policy);
    if (stage.plan.weights.buffers > 0) {
      policy.weight_buffers = stage.plan.weights.buffers;
    }
    policies.push_back(std::move(policy));
  }
  return policies;
}

void apply_plan(const plan::JobPlan& plan, const model::WeightFormat& stored,
                job::JobConfig& config) {
  config.batch = plan.batch;
  config.batch.admission = {};  // the schedule decides them
  config.batch.longest_prompt = 0;
  config.inner_iterations_given = true;
  config.schedule = plan.schedule;
  config.layers_per_stage = plan.layers_per_stage;
  config.policies = settled_policies(plan);
  if (plan.weights != stored) {
    config.compression = {.weights = plan.weights.layers.packing,
                          .group = plan.weights.layers.group,
                          .embeddings = plan.weights.embeddings};
  }
}

std::string format_job_file(const plan::JobPlan& plan, const model::WeightFormat& stored) {
  const auto& batch = plan.batch;
  auto text = fmt::format(
      "# A job planned by 'stagecoach plan', for --config of 'stagecoach run'.\n{}"
      "stages = {}\nlayers-per-stage = {}\nschedule = {}\n"
      "gpu-batch-size = {}\nnum-gpu-batches = {}\ninner-iterations = {}\nprefill-piece = {}\n"
      "page-tokens = {}\n{}",
      commented(plan::summarize(plan)), plan.stages.size(), fmt::join(plan.layers_per_stage, ","),
      stage::to_string(plan.schedule), batch.gpu_batch_size, batch.num_gpu_batches,
      batch.inner_iterations, batch.prefill_piece, batch.page_tokens, format_formats(plan, stored));
  const auto policies = settled_policies(plan);
  for (std::size_t stage = 0; stage < policies.size(); ++stage) {
    const auto most = plan::bottleneck_of(plan.simulated, stage);
    text += fmt::format("\n[stage {}]\n# {} is busy {:.1f} % of the time\n{}", stage,
                        to_string(most.resource), 100 * most.share, format_policy(policies[stage]));
  }
  return text;
}

}  // namespace stagecoach::cli
