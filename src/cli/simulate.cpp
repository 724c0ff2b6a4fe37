#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/staged_file.hpp"
#include "base/units.hpp"
#include "cli/batch_options.hpp"
#include "cli/commands.hpp"
#include "cli/compression_options.hpp"
#include "cli/job_options.hpp"
#include "cli/options.hpp"
#include "cli/plan_inputs.hpp"
#include "cli/policy_options.hpp"
#include "plan/simulation.hpp"
#include "plan/stage_estimate.hpp"
#include "plan/trace.hpp"
#include "stage/partition.hpp"

namespace stagecoach::cli {
namespace {

using Integer = std::int64_t;

constexpr const char* kUsage =
    "usage: stagecoach simulate (--model FILE | --spec INI) --profile FILE[,FILE...] [options]\n"
    "Runs a job's schedules on any machines under a virtual clock: how fast it will be, what\n"
    "keeps it from being faster, and what memory it takes. Nothing of the model is needed.";

po::options_description describe() {
  po::options_description output("Output");
  output.add_options()("layers-per-stage", po::value<std::string>(),
                       "like 3,3,2; default: as even as can be")(
      "trace", po::value<std::string>(), "file to make, for chrome://tracing or Perfetto")(
      "overwrite", po::bool_switch(), "replace it")("json", po::bool_switch(),
                                                    "print one JSON object instead of tables");
  po::options_description all;
  all.add(plan_input_options())
      .add(output)
      .add(batch_options())
      .add(compression_options())
      .add(policy_options());
  return all;
}

/// What is simulated.
struct Job {
  plan::Cluster cluster;
  plan::Workload requests;
  std::vector<stage::PlannedStage> stages;
};

Job read_job(const Options& options) {
  const auto model = read_model_shape(options, "simulate");
  Job job{.cluster = read_cluster(options, "simulate"),
          .requests = read_lengths(options, model),
          .stages = {}};
  const auto stages = static_cast<int>(job.cluster.stages());
  const auto schedule = stage::parse_schedule(options.text("schedule"), "--schedule");
  const auto batch = stage::shape_for(read_batch_shape(options), schedule, stages);
  if (!options.has("prompts") && !options.has("requests")) {
    job.requests.resize(static_cast<std::size_t>(batch.places()), job.requests.front());
  }
  std::vector<Integer> layers;
  if (options.has("layers-per-stage")) {
    layers = parse_integers(options.text("layers-per-stage"), "layers-per-stage");
  }
  std::vector<stage::StageShape> shapes;
  for (const auto& contents : stage::partition_layers(model.spec.layers, stages, layers)) {
    shapes.push_back(
        {model.spec, contents, batch, job::choose_format(read_compression(options), model.stored)});
  }
  job.stages = plan::plan_stages(shapes, read_policies(options, stages), job.cluster, job.requests,
                                 schedule, !options.flag("no-overlap"));
  return job;
}

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f}", 100 * part / whole) : "-";
}

void print_summary(const Job& job, const plan::SimulationResult& result) {
  const auto requests = static_cast<Integer>(job.requests.size());
  fmt::print(
      "{} requests, {} prompt tokens, {} generated tokens on {} stages: {}\n"
      "{:.4g} generated tokens/s; prefill {}, then {:.4g} decoded tokens/s\n"
      "latency of a request: {} on average, {} at most\n",
      requests, result.prompt_tokens, result.generated_tokens, job.stages.size(),
      format_seconds(result.seconds), result.tokens_per_second(),
      format_seconds(result.prefill_seconds), result.decode_tokens_per_second(requests),
      format_seconds(result.mean_latency_seconds), format_seconds(result.max_latency_seconds));
}

void print_stages(const Job& job, const plan::SimulationResult& result) {
  fmt::print("\nbusy, per cent of the time\n{:>5}", "stage");
  for (int r = 0; r < stage::kResources; ++r) {
    fmt::print(" {:>11}", to_string(static_cast<stage::Resource>(r)));
  }
  fmt::print(" {:>8}\n", "bubbles");
  for (std::size_t k = 0; k < result.stages.size(); ++k) {
    fmt::print("{:>5}", k);
    for (const auto busy : result.stages[k].busy_seconds) {
      fmt::print(" {:>11}", busy > 0 ? percent(busy, result.seconds) : "");
    }
    fmt::print(" {:>8}\n", percent(result.stages[k].bubble_seconds(), result.seconds));
  }
  fmt::print("\nmemory, at most\n{:>5} {:>24} {:>24} {:>24} {:>10}\n", "stage", "device", "cpu",
             "disk", "KV pages");
  for (std::size_t k = 0; k < job.stages.size(); ++k) {
    const auto& memory = job.stages[k].memory;
    fmt::print("{:>5}", k);
    for (const auto tier : offload::kTiers) {
      fmt::print(" {:>24}", fmt::format("{} of {}", format_bytes(memory.total_bytes(tier)),
                                        format_bytes(memory.budget_bytes(tier))));
    }
    fmt::print(" {:>10}\n", result.stages[k].peak_pages);
  }
}

nlohmann::json to_json(const Job& job, const plan::SimulationResult& result) {
  nlohmann::json out = {
      {"seconds", result.seconds},
      {"prefill_seconds", result.prefill_seconds},
      {"requests", job.requests.size()},
      {"prompt_tokens", result.prompt_tokens},
      {"generated_tokens", result.generated_tokens},
      {"tokens_per_second", result.tokens_per_second()},
      {"decode_tokens_per_second",
       result.decode_tokens_per_second(static_cast<Integer>(job.requests.size()))},
      {"mean_latency_seconds", result.mean_latency_seconds},
      {"max_latency_seconds", result.max_latency_seconds}};
  for (std::size_t k = 0; k < result.stages.size(); ++k) {
    const auto& use = result.stages[k];
    nlohmann::json stage = {{"bubble_seconds", use.bubble_seconds()},
                            {"peak_kv_pages", use.peak_pages}};
    for (int r = 0; r < stage::kResources; ++r) {
      const auto name = to_string(static_cast<stage::Resource>(r));
      stage["busy_seconds"][name] = use.busy_seconds[static_cast<std::size_t>(r)];
      stage["bytes"][name] = use.bytes[static_cast<std::size_t>(r)];
    }
    for (const auto tier : offload::kTiers) {
      stage["memory_bytes"][to_string(tier)] = job.stages[k].memory.total_bytes(tier);
    }
    out["stages"].push_back(std::move(stage));
  }
  return out;
}

}  // namespace

int simulate_command(const std::vector<std::string>& arguments) {
  const auto options = parse_options("simulate", kUsage, describe(), arguments);
  if (!options) {
    return 0;
  }
  const auto job = read_job(*options);
  std::vector<stage::StagePlan> plans;
  for (const auto& stage : job.stages) {
    plans.push_back(stage.plan);
  }
  const auto result =
      plan::simulate(plans, job.cluster, job.requests, job.stages.front().memory.kv_pages_per_layer,
                     {.trace = options->has("trace")});
  if (options->flag("json")) {
    fmt::print("{}\n", to_json(job, result).dump());
  } else {
    print_summary(job, result);
    print_stages(job, result);
  }
  if (options->has("trace")) {
    write_text_file(options->text("trace"), plan::format_trace(result.trace),
                    options->flag("overwrite"));
  }
  return 0;
}

}  // namespace stagecoach::cli
