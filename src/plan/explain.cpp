#include "plan/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/units.hpp"

namespace stagecoach::plan {
namespace {

using offload::Tier;
using stage::Resource;

constexpr std::array kShownResources = {
    Resource::compute,   Resource::cpu_compute, Resource::h2d,  Resource::d2h,
    Resource::disk_read, Resource::disk_write,  Resource::send, Resource::receive};

std::size_t index_of(Resource resource) { return static_cast<std::size_t>(resource); }

/// Short times with more places than format_seconds has.
std::string format_time(double seconds) {
  return seconds < 9.995 ? fmt::format("{:.3g} s", seconds) : format_seconds(seconds);
}

std::string format_cache(const device::KvFormat& format) {
  return format.packed()                      ? describe(format.pack())
         : format.type == device::KvType::f32 ? "f32"
                                              : "f16";
}

std::string format_shape(const stage::BatchShape& batch) {
  return fmt::format("{} x {} sequences a block, {} in flight, prompts in pieces of {}",
                     batch.gpu_batch_size, batch.num_gpu_batches, batch.inner_iterations,
                     batch.prefill_piece);
}

std::string format_share(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string describe(const Bottleneck& bottleneck) {
  return fmt::format("{} of stage {}, busy {} of the time", to_string(bottleneck.resource),
                     bottleneck.stage, format_share(bottleneck.share));
}

std::string format_prediction(const JobPlan& plan) {
  auto text = fmt::format(
      "{:.4g} generated tokens/s, {:.4g} while decoding; {} in all, the slowest request {}",
      plan.tokens_per_second, plan.decode_tokens_per_second, format_time(plan.seconds),
      format_time(plan.max_latency_seconds));
  if (plan.joules > 0) {
    const auto tokens = plan.tokens_per_second * plan.seconds;
    text += fmt::format("; {:.3g} kWh, {:.3g} J a token", plan.joules / 3.6e6,
                        plan.joules / std::max(tokens, 1.0));
  }
  return text;
}

std::string stage_title(const JobPlan& plan, const Cluster& cluster, std::size_t stage) {
  const auto& node = cluster.of_stage(stage);
  const auto& planned = plan.stages[stage].plan;
  const auto& part = planned.shape.contents;
  auto text = fmt::format("stage {} on {}: layers {} to {}{}{}", stage,
                          node.host.empty() ? "a node without a name" : node.host, part.first_layer,
                          part.first_layer + part.layers - 1, part.embedding ? ", embedding" : "",
                          part.head ? ", head" : "");
  if (planned.weights.buffers > 0) {
    text += fmt::format("; {} buffer{} of streamed weights", planned.weights.buffers,
                        planned.weights.buffers == 1 ? "" : "s");
  }
  if (planned.cpu_attention) {
    text += "; attention to what is outside the device on the CPU";
  }
  return text + "\n";
}

std::string tier_table(const stage::PlannedStage& stage) {
  const auto& percent = stage.plan.policy.percent;
  const std::array<std::array<double, 3>, 3> placed = {
      {{percent.weights_device, percent.cache_device, percent.hidden_device},
       {percent.weights_cpu, percent.cache_cpu, percent.hidden_cpu},
       {100 - percent.weights_device - percent.weights_cpu,
        100 - percent.cache_device - percent.cache_cpu,
        100 - percent.hidden_device - percent.hidden_cpu}}};
  auto text = fmt::format("  {:<12}{:>9}{:>9}{:>13}{:>12}{:>12}{:>9}\n", "tier", "weights", "cache",
                          "activations", "taken", "budget", "used");
  for (const auto tier : offload::kTiers) {
    const auto& row = placed.at(static_cast<std::size_t>(tier));
    const auto bytes = stage.memory.total_bytes(tier);
    const auto budget = stage.memory.budget_bytes(tier);
    if (bytes == 0 && std::all_of(row.begin(), row.end(), [](double p) { return p < 1e-9; })) {
      continue;
    }
    const auto part = [](double p) { return fmt::format("{:.4g} %", std::max(p, 0.0)); };
    text += fmt::format(
        "  {:<12}{:>9}{:>9}{:>13}{:>12}{:>12}{:>9}\n", to_string(tier), part(row[0]), part(row[1]),
        part(row[2]), format_bytes(bytes), format_bytes(budget),
        budget > 0 ? format_share(static_cast<double>(bytes) / static_cast<double>(budget)) : "-");
  }
  if (stage.memory.budgets.together > 0) {
    text += fmt::format(
        "  device and cpu are one memory: {} of {}\n",
        format_bytes(stage.memory.total_bytes(Tier::device) + stage.memory.total_bytes(Tier::cpu)),
        format_bytes(stage.memory.budgets.together));
  }
  return text;
}

std::string resource_table(const SimulationResult& simulated, std::size_t stage) {
  const auto most = bottleneck_of(simulated, stage);
  auto text =
      fmt::format("  {:<12}{:>12}{:>14}{:>12}\n", "resource", "busy s", "of the time", "moved");
  for (const auto resource : kShownResources) {
    const auto seconds = simulated.stages[stage].busy_seconds[index_of(resource)];
    const auto bytes = simulated.stages[stage].bytes[index_of(resource)];
    if (seconds <= 0 && bytes <= 0) {
      continue;
    }
    text += fmt::format("  {:<12}{:>12.4g}{:>14}{:>12}{}\n", to_string(resource), seconds,
                        format_share(seconds / simulated.seconds),
                        bytes > 0 ? format_bytes(static_cast<std::size_t>(bytes)) : "",
                        resource == most.resource ? "  <- the bottleneck" : "");
  }
  return text;
}

/// Where a value lies among `cells` of an axis.
std::size_t cell_of(double value, double least, double most, std::size_t cells) {
  const auto share = most > least ? (value - least) / (most - least) : 0.0;
  return std::min(cells - 1, static_cast<std::size_t>(share * static_cast<double>(cells)));
}

std::string plot_frontier(const std::vector<JobPlan>& plans) {
  constexpr std::size_t kRows = 12;
  constexpr std::size_t kColumns = 60;
  double longest = 0;
  double fastest = 0;
  for (const auto& plan : plans) {
    longest = std::max(longest, plan.max_latency_seconds);
    fastest = std::max(fastest, plan.tokens_per_second);
  }
  std::vector<std::string> rows(kRows, std::string(kColumns, ' '));
  for (const auto& plan : plans) {
    rows[kRows - 1 - cell_of(plan.tokens_per_second, 0, fastest, kRows)]
        [cell_of(plan.max_latency_seconds, 0, longest, kColumns)] = '*';
  }
  auto text = fmt::format("  tokens/s, up to {:.4g}\n", fastest);
  for (const auto& row : rows) {
    text += "  |" + row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text + "  +" + std::string(kColumns, '-') +
         fmt::format("  latency of a request, 0 to {}\n", format_time(longest));
}

constexpr const char* kPlanRow = "  {:>9} {:>9} {:>9}  {:<14} {:>6} {:>5} {:<6} {:<6} {:<28} {}\n";

std::string plan_header() {
  return fmt::format(kPlanRow, "tokens/s", "latency", "in all", "batches", "piece", "page",
                     "weights", "cache", "percent of stage 0", "layers");
}

std::string plan_line(const JobPlan& plan) {
  const auto& batch = plan.batch;
  const auto& percent = plan.policies.front().percent;
  return fmt::format(kPlanRow, fmt::format("{:.4g}", plan.tokens_per_second),
                     format_time(plan.max_latency_seconds), format_time(plan.seconds),
                     fmt::format("{} x {} x {}", batch.gpu_batch_size, batch.num_gpu_batches,
                                 batch.inner_iterations),
                     batch.prefill_piece, batch.page_tokens,
                     plan.weights.packed() ? to_string(plan.weights.layers.packing) : "f16",
                     batch.kv_format.packed() ? to_string(batch.kv_format.pack().packing) : "f16",
                     fmt::format("{:.3g} {:.3g} {:.3g} {:.3g} {:.3g} {:.3g}",
                                 percent.weights_device, percent.weights_cpu, percent.cache_device,
                                 percent.cache_cpu, percent.hidden_device, percent.hidden_cpu),
                     fmt::join(plan.layers_per_stage, ","));
}

}  // namespace

Bottleneck bottleneck_of(const SimulationResult& simulated, std::size_t stage) {
  Bottleneck most{.stage = stage, .resource = Resource::compute, .share = 0};
  for (const auto resource : kShownResources) {
    const auto share = simulated.stages[stage].busy_seconds[index_of(resource)] / simulated.seconds;
    if (share > most.share) {
      most.resource = resource;
      most.share = share;
    }
  }
  return most;
}

Bottleneck bottleneck_of(const SimulationResult& simulated) {
  STAGECOACH_CHECK(!simulated.stages.empty());
  auto most = bottleneck_of(simulated, 0);
  for (std::size_t stage = 1; stage < simulated.stages.size(); ++stage) {
    if (const auto here = bottleneck_of(simulated, stage); here.share > most.share) {
      most = here;
    }
  }
  return most;
}

std::string summarize(const JobPlan& plan) {
  return fmt::format(
      "{} stage{} with {} layers; schedule {}\n"
      "batches: {}; weights {}, cache {}\n"
      "predicted: {}\n"
      "bottleneck: {}\n",
      plan.stages.size(), plan.stages.size() == 1 ? "" : "s",
      fmt::join(plan.layers_per_stage, ", "), stage::to_string(plan.schedule),
      format_shape(plan.batch), model::describe(plan.weights), format_cache(plan.batch.kv_format),
      format_prediction(plan), describe(bottleneck_of(plan.simulated)));
}

std::string explain(const JobPlan& plan, const Cluster& cluster) {
  auto text = summarize(plan);
  if (plan.seconds > plan.simulated.seconds) {
    text += fmt::format("times below are of the first {}, after which all goes on as it did\n",
                        format_time(plan.simulated.seconds));
  }
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) {
    text += "\n" + stage_title(plan, cluster, stage) + tier_table(plan.stages[stage]) +
            resource_table(plan.simulated, stage);
  }
  return text;
}

std::string format_alternatives(const PlanResult& result) {
  auto text = plan_header();
  for (const auto& plan : result.best) {
    text += plan_line(plan);
  }
  return text;
}

std::string format_frontier(const PlanResult& result) {
  auto text = plan_header();
  for (const auto& plan : result.frontier) {
    text += plan_line(plan);
  }
  return text + "\n" + plot_frontier(result.frontier);
}

std::string format_improvements(std::vector<Improvement> found, const JobPlan& plan) {
  for (auto& one : found) {
    one.tokens_per_second = std::max(one.tokens_per_second, plan.tokens_per_second);
  }
  std::stable_sort(found.begin(), found.end(), [](const Improvement& a, const Improvement& b) {
    return a.tokens_per_second > b.tokens_per_second;
  });
  std::string text;
  for (const auto& one : found) {
    text += fmt::format("  {:<44}{:>10.4g} tokens/s  {:.2f} times\n", one.what,
                        one.tokens_per_second, one.tokens_per_second / plan.tokens_per_second);
  }
  return text;
}

}  // namespace stagecoach::plan
