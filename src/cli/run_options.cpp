#include "cli/run_options.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/error.hpp"
#include "cli/batch_options.hpp"
#include "cli/compression_options.hpp"
#include "cli/ini_file.hpp"
#include "cli/options.hpp"
#include "cli/policy_options.hpp"

namespace stagecoach::cli {
namespace {

using Integer = std::int64_t;
using Text = std::string;

constexpr const char* kUsage =
    "usage: stagecoach run --model FILE --prompts FILE --output FILE [options]\n"
    "       mpirun -n STAGES stagecoach run ...";

constexpr Integer kMost = Integer{1} << 40;

/// An option of type T whose default is shown by --help.
template <typename T>
po::typed_value<T>* with_default(T value) {
  return po::value<T>()->default_value(std::move(value));
}

po::options_description job_options() {
  po::options_description group("Model, input and output");
  group.add_options()("config", po::value<Text>(),
                      "ini file with any of these options; the command line wins")(
      "model", po::value<Text>(), "weight store made by 'stagecoach convert'")(
      "dummy", po::value<Text>(), "SEED: generated weights in place of a store; needs --spec")(
      "spec", po::value<Text>(), "ini file of configs/models with the shapes of --dummy")(
      "tokenizer", po::value<Text>(),
      "folder with vocab.json and merges.txt, instead of the store's")(
      "prompts", po::value<Text>(), "requests, JSON Lines; - is standard input")(
      "output", po::value<Text>(), "results, JSON Lines, as they finish; - is standard output")(
      "overwrite", po::bool_switch(), "replace an existing output")(
      "ordered", po::bool_switch(), "at the end, also write the results in input order")(
      "on-error", with_default<Text>("stop"), "what a bad request line does: skip or stop")(
      "logprobs", po::value<Integer>(),
      "K: logprobs of the generated tokens and the top K of each")(
      "prompt-logprobs", po::bool_switch(), "the same for the prompts' tokens")(
      "dry-run", po::bool_switch(), "show stages and memory, check the requests, then stop")(
      "log-level", with_default<Text>("info"), "debug, info, warning, error or off");
  return group;
}

po::options_description request_options() {
  po::options_description group("Defaults of a request");
  group.add_options()("max-new-tokens", with_default<Integer>(32), "tokens to generate at most")(
      "temperature", with_default<double>(0), "0 is greedy")(
      "top-k", with_default<Integer>(0), "sample among the K likeliest tokens; 0 is off")(
      "top-p", with_default<double>(1), "sample among the likeliest tokens of mass P; 1 is off")(
      "seed", with_default<Text>("0"), "of sampling")("stop",
                                                      po::value<std::vector<Text>>()->composing(),
                                                      "text that ends a request; may come again")(
      "ignore-eos", po::bool_switch(), "generate on past </s>");
  return group;
}

po::options_description stage_options() {
  po::options_description group("Stages");
  group.add_options()("transport", with_default<Text>("auto"),
                      "mpi, loopback (stages are threads), or auto")(
      "stages", po::value<Integer>(), "with loopback: number of stages (1)")(
      "layers-per-stage", po::value<Text>(), "like 3,3,2; default: as even as can be")(
      "threads", with_default<Integer>(0), "a stage; 0 shares out this machine's CPUs")(
      "isa", with_default<Text>("auto"), "widest instructions: auto, avx2 or avx512")(
      "timeout", with_default<double>(1800), "seconds that a rank waits for a message at most");
  return group;
}

po::options_description disk_options() {
  po::options_description group("Disk, and tests");
  group.add_options()("disk-io", with_default<Text>("auto"),
                      "how disks are read and written: auto, uring or threads")(
      "test-delays", with_default<Text>("0"), "SEED: every queue sleeps random times; 0: never")(
      "test-staging", po::bool_switch(), "copy to the CPU's device as one must to a GPU");
  return group;
}

template <typename T>
T one_of(const Options& options, const std::string& name,
         const std::vector<std::pair<std::string, T>>& choices) {
  std::string known;
  for (const auto& [text, value] : choices) {
    if (options.text(name) == text) {
      return value;
    }
    known += (known.empty() ? "" : ", ") + text;
  }
  throw ConfigError(fmt::format("--{} {}: must be one of {}", name, options.text(name), known));
}

std::vector<std::int64_t> parse_list(const std::string& text, const std::string& flag) {
  std::vector<std::int64_t> values;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) {
    std::int64_t value = 0;
    const auto* end = item.data() + item.size();
    if (const auto [stop, code] = std::from_chars(item.data(), end, value);
        code != std::errc{} || stop != end) {
      throw ConfigError(fmt::format("--{} {}: must be whole numbers with commas", flag, text));
    }
    values.push_back(value);
  }
  return values;
}

void read_job(const Options& options, job::JobConfig& config) {
  if (options.has("model")) {
    config.model_path = options.text("model");
  }
  if (options.has("dummy") != options.has("spec")) {
    throw ConfigError("--dummy and --spec go together: give both or neither");
  }
  if (options.has("dummy")) {
    config.dummy_seed = parse_unsigned(options.text("dummy"), "--dummy");
    const auto& path = options.text("spec");
    config.dummy_spec = model::spec_from_settings(read_ini_file(path), path);
  }
  if (options.has("tokenizer")) {
    config.tokenizer_path = options.text("tokenizer");
  }
  config.prompts_path = options.text("prompts");
  config.output_path = options.text("output");
  config.overwrite = options.flag("overwrite");
  config.ordered = options.flag("ordered");
  config.skip_bad_requests = one_of<bool>(options, "on-error", {{"skip", true}, {"stop", false}});
  if (options.has("logprobs")) {
    config.num_logprobs = static_cast<std::int32_t>(options.integer("logprobs", 0, 1000));
  }
  config.prompt_logprobs = options.flag("prompt-logprobs");
  config.dry_run = options.flag("dry-run");
  config.log_level = options.text("log-level");
}

job::RequestDefaults read_defaults(const Options& options) {
  job::RequestDefaults defaults;
  defaults.max_new_tokens = options.integer("max-new-tokens", 1, kMost);
  defaults.temperature = options.get<double>("temperature");
  defaults.top_k = static_cast<std::int32_t>(options.integer("top-k", 0, 1 << 30));
  defaults.top_p = options.get<double>("top-p");
  defaults.seed = parse_unsigned(options.text("seed"), "--seed");
  if (options.has("stop")) {
    defaults.stop = options.get<std::vector<Text>>("stop");
  }
  defaults.ignore_eos = options.flag("ignore-eos");
  return defaults;
}

void read_batch(const Options& options, job::JobConfig& config) {
  config.batch = read_batch_shape(options);
  config.inner_iterations_given = config.batch.inner_iterations > 0;
  config.batch.inner_iterations = std::max<Integer>(config.batch.inner_iterations, 1);
}

void read_transport(const Options& options, int launched_ranks, job::JobConfig& config) {
  using Kind = job::TransportKind;
  const auto automatic = launched_ranks > 1 ? Kind::mpi : Kind::loopback;
  config.transport =
      one_of<Kind>(options, "transport",
                   {{"auto", automatic}, {"mpi", Kind::mpi}, {"loopback", Kind::loopback}});
  if (options.has("stages")) {
    config.stages = static_cast<int>(options.integer("stages", 1, 4096));
  }
  if (config.transport == Kind::loopback && launched_ranks > 1) {
    throw ConfigError(fmt::format(
        "--transport loopback: runs in one process, but {} were launched; leave mpirun out",
        launched_ranks));
  }
  if (config.transport == Kind::mpi && options.has("stages") && config.stages != launched_ranks) {
    throw ConfigError(fmt::format(
        "--stages {}: with mpi there is a stage a rank, and {} were launched; use mpirun -n {}",
        config.stages, launched_ranks, config.stages));
  }
  if (config.transport == Kind::mpi) {
    config.stages = launched_ranks;
  }
}

}  // namespace

std::optional<job::JobConfig> read_run_options(const std::vector<std::string>& arguments,
                                               int launched_ranks) {
  po::options_description all;
  all.add(job_options())
      .add(request_options())
      .add(stage_options())
      .add(batch_options())
      .add(compression_options())
      .add(policy_options())
      .add(disk_options());
  const auto options = parse_options("run", kUsage, all, arguments);
  if (!options) {
    return std::nullopt;
  }
  job::JobConfig config;
  read_job(*options, config);
  config.defaults = read_defaults(*options);
  read_batch(*options, config);
  config.compression = read_compression(*options);
  read_transport(*options, launched_ranks, config);
  if (options->has("layers-per-stage")) {
    config.layers_per_stage = parse_list(options->text("layers-per-stage"), "layers-per-stage");
  }
  config.threads = static_cast<int>(options->integer("threads", 0, 4096));
  config.isa =
      one_of<Text>(*options, "isa", {{"auto", "auto"}, {"avx2", "avx2"}, {"avx512", "avx512"}});
  config.policies = read_policies(*options, config.stages);
  config.schedule = stage::parse_schedule(options->text("schedule"), "--schedule");
  config.overlap = !options->flag("no-overlap");
  config.disk_backend = one_of<offload::DiskBackend>(*options, "disk-io",
                                                     {{"auto", offload::DiskBackend::automatic},
                                                      {"uring", offload::DiskBackend::uring},
                                                      {"threads", offload::DiskBackend::threads}});
  config.test_delay_seed = parse_unsigned(options->text("test-delays"), "--test-delays");
  config.test_staging = options->flag("test-staging");
  config.timeout_seconds = options->get<double>("timeout");
  validate(config);
  return config;
}

}  // namespace stagecoach::cli
