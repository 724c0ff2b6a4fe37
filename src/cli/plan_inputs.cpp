#include "cli/plan_inputs.hpp"

#include <optional>
#include <sstream>

#include "base/ini_file.hpp"
#include "base/log.hpp"
#include "job/request_reader.hpp"

namespace stagecoach::cli {
namespace {

using Integer = std::int64_t;
using Text = std::string;

constexpr Integer kMostStages = 4096;
constexpr Integer kMostTokens = Integer{1} << 20;
constexpr Integer kMostRequests = Integer{1} << 24;

plan::Workload lengths_of(const std::vector<job::Request>& requests) {
  plan::Workload lengths;
  lengths.reserve(requests.size());
  for (const auto& request : requests) {
    lengths.push_back({static_cast<Integer>(request.prompt_tokens.size()), request.max_new_tokens});
  }
  return lengths;
}

plan::Workload read_prompts(const Options& options, const ModelShape& model) {
  std::optional<model::Tokenizer> tokenizer;
  if (options.has("model")) {
    const auto index = model::read_store_index(options.text("model"));
    if (!index.tokenizer.vocab_json.empty()) {
      tokenizer.emplace(index.tokenizer, index.spec.vocab);
    }
  }
  job::RequestDefaults defaults;
  defaults.max_new_tokens = options.integer("gen-len", 1, kMostTokens);
  const auto list =
      job::read_requests(options.text("prompts"), defaults, model.spec,
                         tokenizer ? &*tokenizer : nullptr, job::OnError::stop, Log("", "warning"));
  if (list.requests.empty()) {
    throw ConfigError(fmt::format("--prompts {}: has no requests", options.text("prompts")));
  }
  return lengths_of(list.requests);
}

}  // namespace

po::options_description plan_input_options() {
  po::options_description group("Model, machines and work");
  group.add_options()("config", po::value<Text>(),
                      "ini file with any of these options; the command line wins")(
      "model", po::value<Text>(), "weight store made by 'stagecoach convert'")(
      "spec", po::value<Text>(), "or an ini file of configs/models")(
      "profile", po::value<Text>(),
      "node profiles (made by 'stagecoach profile', or of configs/hardware), one a node, with "
      "commas; the last stands for all further nodes")("stages", po::value<Integer>(),
                                                       "of the job (1)")(
      "stages-per-node", po::value<Integer>(), "stages on one node (as the profile was measured)")(
      "prompts", po::value<Text>(), "the requests themselves, JSON Lines; or:")(
      "requests", po::value<Integer>(), "their number (all places, once)")(
      "prompt-len", po::value<Integer>()->default_value(512), "prompt tokens of every request")(
      "gen-len", po::value<Integer>()->default_value(32),
      "new tokens of every request, or of those in --prompts that do not say");
  return group;
}

ModelShape read_model_shape(const Options& options, const std::string& command) {
  options.exclude("model", "spec");
  if (options.has("spec")) {
    const auto& path = options.text("spec");
    return {model::spec_from_settings(read_ini_file(path), path), {}};
  }
  if (!options.has("model")) {
    throw ConfigError(fmt::format("{}: give --model FILE or --spec INI", command));
  }
  const auto index = model::read_store_index(options.text("model"));
  return {index.spec, index.weights};
}

std::vector<plan::NodeProfile> read_profiles(const std::string& paths, const std::string& flag) {
  std::vector<plan::NodeProfile> profiles;
  std::istringstream in(paths);
  for (std::string path; std::getline(in, path, ',');) {
    profiles.push_back(plan::read_profile(path));
  }
  if (profiles.empty()) {
    throw ConfigError(fmt::format("{}: names no file", flag));
  }
  return profiles;
}

plan::Cluster read_cluster(const Options& options, const std::string& command) {
  if (!options.has("profile")) {
    throw ConfigError(fmt::format(
        "{}: give --profile FILE, made by 'stagecoach profile' or one of configs/hardware",
        command));
  }
  const auto profiles = read_profiles(options.text("profile"), "--profile");
  const auto stages =
      options.has("stages") ? static_cast<int>(options.integer("stages", 1, kMostStages)) : 1;
  const auto stages_a_node =
      options.has("stages-per-node")
          ? static_cast<int>(options.integer("stages-per-node", 1, kMostStages))
          : profiles.front().stages;
  return plan::make_cluster(profiles, stages, stages_a_node);
}

plan::Workload read_lengths(const Options& options, const ModelShape& model) {
  if (options.has("prompts")) {
    if (options.given("requests") || options.given("prompt-len")) {
      throw ConfigError("--prompts: has its own lengths; leave out --requests and --prompt-len");
    }
    return read_prompts(options, model);
  }
  const auto prompt = options.integer("prompt-len", 1, kMostTokens);
  const auto generated = options.integer("gen-len", 1, kMostTokens);
  if (prompt + generated > model.spec.max_positions) {
    throw ConfigError(
        fmt::format("--prompt-len {} and --gen-len {}: together more than the model's {} positions",
                    prompt, generated, model.spec.max_positions));
  }
  const auto count = options.has("requests") ? options.integer("requests", 1, kMostRequests) : 0;
  // Without a number the one who asks knows how many places there are, and fills them once.
  return {static_cast<std::size_t>(std::max<Integer>(count, 1)), {prompt, generated}};
}

}  // namespace stagecoach::cli
