#include "cli/run_options.hpp"

#include <utility>

#include "base/error.hpp"
#include "cli/job_options.hpp"

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

po::options_description input_options() {
  po::options_description group("Input and output");
  group.add_options()("prompts", po::value<Text>(), "requests, JSON Lines; - is standard input")(
      "output", po::value<Text>(), "results, JSON Lines, as they finish; - is standard output")(
      "overwrite", po::bool_switch(), "replace an existing output")(
      "ordered", po::bool_switch(), "at the end, also write the results in input order")(
      "on-error", with_default<Text>("stop"), "what a bad request line does: skip or stop")(
      "logprobs", po::value<Integer>(),
      "K: logprobs of the generated tokens and the top K of each")(
      "prompt-logprobs", po::bool_switch(), "the same for the prompts' tokens");
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

void read_input(const Options& options, job::JobConfig& config) {
  config.prompts_path = options.text("prompts");
  config.output_path = options.text("output");
  config.ordered = options.flag("ordered");
  if (options.has("logprobs")) {
    config.num_logprobs = static_cast<std::int32_t>(options.integer("logprobs", 0, 1000));
  }
  config.prompt_logprobs = options.flag("prompt-logprobs");
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

}  // namespace

std::optional<RunRequest> read_run_request(const std::vector<std::string>& arguments,
                                           int launched_ranks) {
  po::options_description all;
  all.add(model_options()).add(input_options()).add(request_options());
  add_pipeline_options(all);
  all.add(planning_options());
  const auto options = parse_options("run", kUsage, all, arguments);
  if (!options) {
    return std::nullopt;
  }
  RunRequest request;
  auto& config = request.config;
  read_input(*options, config);
  config.defaults = read_defaults(*options);
  read_job_options(*options, launched_ranks, config);
  request.planning = read_planning(*options, config);
  validate(config);
  return request;
}

std::optional<job::JobConfig> read_run_options(const std::vector<std::string>& arguments,
                                               int launched_ranks) {
  auto request = read_run_request(arguments, launched_ranks);
  return request ? std::optional(std::move(request->config)) : std::nullopt;
}

}  // namespace stagecoach::cli
