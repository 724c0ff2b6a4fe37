#include "cli/run_planning.hpp"

#include <utility>

#include "cli/job_file.hpp"
#include "cli/plan_inputs.hpp"
#include "cli/plan_limits.hpp"
#include "cli/run_comparison.hpp"
#include "device/cuda/cuda_devices.hpp"
#include "job/request_reader.hpp"
#include "job/stage_device.hpp"
#include "job/workload.hpp"
#include "plan/explain.hpp"

namespace stagecoach::cli {
namespace {

/// What a plan decides.
constexpr const char* kPlanned[] = {"percent",
                                    "weight-buffers",
                                    "pin-weights",
                                    "cpu-attention",
                                    "widen-weights",
                                    "stage-policy",
                                    "layers-per-stage",
                                    "gpu-batch-size",
                                    "num-gpu-batches",
                                    "inner-iterations",
                                    "prefill-piece",
                                    "page-tokens",
                                    "compress-weights",
                                    "compress-cache",
                                    "compress-group",
                                    "compress-embeddings",
                                    "attention-sparsity",
                                    "kv-dtype",
                                    "no-overlap"};

bool was_given(const Options& options, const std::string& name) {
  // A flag that is not there was read as false.
  const bool is_flag = name == "no-overlap" || name == "compress-embeddings";
  return is_flag ? options.flag(name) : options.given(name);
}

void refuse_what_is_planned(const Options& options, const job::JobConfig& config) {
  for (const std::string name : kPlanned) {
    if (was_given(options, name)) {
      throw ConfigError(
          fmt::format("--plan auto and --{} exclude each other: the plan decides it", name));
    }
  }
  if (!options.sections().empty()) {
    throw ConfigError("--plan auto: the [stage N] sections of --config have a plan already");
  }
  if (config.prompts_path == "-") {
    throw ConfigError("--plan auto: reads the requests twice; give --prompts a file");
  }
}

/// Whether the job computes on GPUs.
bool computes_on_gpu(const std::string& device) {
  using Kind = job::DeviceChoice::Kind;
  const auto kind = job::parse_device(device, "--device").kind;
  return kind == Kind::cuda || (kind == Kind::automatic && device::cuda_device_count() > 0);
}

void check_device(const std::vector<plan::NodeProfile>& profiles, const std::string& device) {
  const bool gpu = computes_on_gpu(device);
  for (const auto& profile : profiles) {
    if (profile.gpu != gpu) {
      throw ConfigError(
          fmt::format("--profile: is of a node {} a GPU ({}), but this job computes on {}; use {}, "
                      "or another profile",
                      profile.gpu ? "with" : "without", profile.host, gpu ? "one" : "the CPU",
                      profile.gpu ? "--device cuda" : "--device host"));
    }
  }
}

plan::Workload lengths_of(const std::vector<job::RequestSize>& sizes) {
  plan::Workload lengths;
  lengths.reserve(sizes.size());
  for (const auto& size : sizes) {
    lengths.push_back({size.prompt, size.max_new});
  }
  return lengths;
}

plan::Workload read_lengths(const job::JobConfig& config, const job::ModelAccess& model,
                            const Log& log) {
  const auto tokenizer = job::tokenizer_of(model);
  const auto list = job::read_requests(
      config.prompts_path, config.defaults, model.spec, tokenizer ? &*tokenizer : nullptr,
      config.skip_bad_requests ? job::OnError::skip : job::OnError::stop, log);
  if (list.requests.empty()) {
    throw ConfigError(fmt::format("--plan auto: there are no requests in {}", config.prompts_path));
  }
  return lengths_of(job::sizes_of(list.requests));
}

}  // namespace

po::options_description planning_options() {
  po::options_description group("Planning");
  group.add_options()("plan", po::value<std::string>(),
                      "auto: find placement and batches first, by --profile; off")(
      "profile", po::value<std::string>(),
      "node profiles (made by 'stagecoach profile'), one a node, with commas; after the run "
      "predicted and measured stand side by side");
  group.add(plan_limit_options());
  return group;
}

PlanningWish read_planning(const Options& options, const job::JobConfig& config) {
  PlanningWish wish;
  wish.plan = options.has("plan") && options.text("plan") != "off";
  if (wish.plan && options.text("plan") != "auto") {
    throw ConfigError(fmt::format("--plan {}: must be auto or off", options.text("plan")));
  }
  if (wish.plan && !options.has("profile")) {
    throw ConfigError("--plan auto: needs --profile FILE, made by 'stagecoach profile'");
  }
  for (const auto* name : {"allow", "max-latency"}) {
    if (!wish.plan && options.has(name)) {
      throw ConfigError(fmt::format("--{}: is for --plan auto", name));
    }
  }
  if (options.has("profile")) {
    wish.profiles = read_profiles(options.text("profile"), "--profile");
    check_device(wish.profiles, config.device);
  }
  if (wish.plan) {
    refuse_what_is_planned(options, config);
    if (!config.model_path.empty()) {
      wish.limits.weights = model::read_store_index(config.model_path).weights;
    }
    read_plan_limits(options, wish.limits);
  }
  return wish;
}

void RunPlanning::prepare(job::JobConfig& config, int stages_a_node, const Log& log) {
  if (wish_.profiles.empty()) {
    return;
  }
  cluster_ = plan::make_cluster(wish_.profiles, config.stages, stages_a_node);
  config.report_whole_job = true;
  if (wish_.plan) {
    plan(config, log);
  }
}

void RunPlanning::plan(job::JobConfig& config, const Log& log) const {
  const auto model = job::open_model(config);
  auto request = wish_.limits;
  request.spec = model.spec;
  request.cluster = *cluster_;
  request.requests = read_lengths(config, model, log);
  request.schedule = config.schedule;
  request.budgets = config.policies;
  request.packed_while_loaded = true;
  const auto result = plan::plan_job(request);
  const auto& best = result.best.front();
  apply_plan(best, request.weights, config);
  job::validate(config);
  log.info("planned\n{}", plan::summarize(best));
}

void RunPlanning::compare(const job::RunReport& report, const Log& log) const try {
  if (!cluster_ || !report.whole || report.whole->requests.empty()) {
    return;
  }
  const auto& whole = *report.whole;
  const auto predicted =
      plan::simulate(whole.plans, *cluster_, lengths_of(whole.requests), whole.kv_pages_per_layer);
  log.info("predicted and measured\n{}", format_comparison(whole, report.totals, predicted));
} catch (const ConfigError& error) {  // the results are there all the same
  log.warning("no prediction: {}", error.what());
}

}  // namespace stagecoach::cli
