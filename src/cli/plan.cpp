#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/staged_file.hpp"
#include "base/units.hpp"
#include "cli/commands.hpp"
#include "cli/job_file.hpp"
#include "cli/options.hpp"
#include "cli/plan_inputs.hpp"
#include "cli/plan_limits.hpp"
#include "plan/explain.hpp"
#include "plan/job_planner.hpp"

namespace stagecoach::cli {
namespace {

using Text = std::string;

constexpr const char* kUsage =
    "usage: stagecoach plan (--model FILE | --spec INI) --profile FILE[,FILE...]\n"
    "                       (--prompts FILE | --requests N) [--out JOB.ini] [options]\n"
    "Finds where to keep what and how to batch, and says how fast the job will be. No part of the\n"
    "machines or of the weights is needed.";

po::options_description budget_options() {
  po::options_description group("Budgets of a stage");
  group.add_options()("device-mem", po::value<Text>(), "device memory, like 16GiB (the profile's)")(
      "cpu-mem", po::value<Text>(), "DRAM beside it (the profile's)")(
      "pinned-mem", po::value<Text>(), "of that, what may be pinned (the profile's)")(
      "disk-mem", po::value<Text>(), "disk space for cache and activations (the profile's)")(
      "offload-dir", po::value<Text>(),
      "folder for cache and activations on disk; without one they do not go there")(
      "schedule", po::value<Text>()->default_value("rolling"), "rolling, zigzag, row or flexgen");
  return group;
}

po::options_description output_options() {
  po::options_description group("Output");
  group.add_options()("out", po::value<Text>(), "job file to make, for --config of 'run'")(
      "overwrite", po::bool_switch(), "replace it")(
      "explain", po::bool_switch(),
      "tables of each stage, the next best plans, and what would help most")(
      "pareto", po::bool_switch(), "plans that trade latency for throughput");
  return group;
}

stage::Policy read_budgets(const Options& options) {
  stage::Policy budgets;
  const auto bytes = [&](const char* name) {
    return options.has(name) ? parse_bytes(options.text(name), fmt::format("--{}", name)) : 0;
  };
  budgets.device_mem_bytes = bytes("device-mem");
  budgets.cpu_mem_bytes = bytes("cpu-mem");
  budgets.pinned_mem_bytes = bytes("pinned-mem");
  budgets.disk_mem_bytes = bytes("disk-mem");
  if (options.has("offload-dir")) {
    budgets.offload_dir = options.text("offload-dir");
  }
  return budgets;
}

plan::PlanRequest read_request(const Options& options) {
  const auto model = read_model_shape(options, "plan");
  if (!options.has("prompts") && !options.has("requests")) {
    throw ConfigError("plan: give --prompts FILE, or --requests N with --prompt-len and --gen-len");
  }
  plan::PlanRequest request;
  request.spec = model.spec;
  request.weights = model.stored;
  request.cluster = read_cluster(options, "plan");
  request.requests = read_lengths(options, model);
  request.schedule = stage::parse_schedule(options.text("schedule"), "--schedule");
  request.budgets = {read_budgets(options)};
  read_plan_limits(options, request);
  return request;
}

void print_explanation(const plan::PlanRequest& request, const plan::PlanResult& result) {
  const auto& best = result.best.front();
  fmt::print("{}\nthe best plans ({} batch shapes tried, {} linear programs)\n{}",
             plan::explain(best, request.cluster), result.shapes_tried, result.programs_solved,
             plan::format_alternatives(result));
  if (const auto gains = plan::improvements(request, best); !gains.empty()) {
    fmt::print("\nwhat would help\n{}", plan::format_improvements(gains, best));
  }
}

bool has_disk(const plan::Cluster& cluster) {
  return std::any_of(cluster.nodes.begin(), cluster.nodes.end(), [](const auto& node) {
    return node.disk_mem_bytes > 0 && !node.disk.write.empty();
  });
}

}  // namespace

int plan_command(const std::vector<std::string>& arguments) {
  po::options_description all;
  all.add(plan_input_options())
      .add(plan_limit_options())
      .add(budget_options())
      .add(output_options());
  const auto options = parse_options("plan", kUsage, all, arguments);
  if (!options) {
    return 0;
  }
  const auto request = read_request(*options);
  const auto result = plan::plan_job(request);
  const auto& best = result.best.front();
  if (options->flag("explain")) {
    print_explanation(request, result);
  } else {
    fmt::print("{}", plan::summarize(best));
  }
  if (request.budgets.front().offload_dir.empty() && has_disk(request.cluster)) {
    fmt::print("cache and activations may not go to disk without --offload-dir DIR\n");
  }
  if (options->flag("pareto")) {
    fmt::print("\nlatency against throughput\n{}", plan::format_frontier(result));
  }
  if (options->has("out")) {
    write_text_file(options->text("out"), format_job_file(best, request.weights),
                    options->flag("overwrite"));
  }
  return 0;
}

}  // namespace stagecoach::cli
