#include "job/config.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "job/stage_device.hpp"

namespace stagecoach::job {
namespace {

using nlohmann::json;

constexpr std::array kTransports = {
    std::pair{"auto", TransportKind::automatic}, std::pair{"mpi", TransportKind::mpi},
    std::pair{"nccl", TransportKind::nccl}, std::pair{"loopback", TransportKind::loopback}};

const char* to_string(TransportKind kind) {
  return std::find_if(kTransports.begin(), kTransports.end(),
                      [&](const auto& known) { return known.second == kind; })
      ->first;
}

TransportKind transport_from(const std::string& text) {
  for (const auto& [name, kind] : kTransports) {
    if (text == name) {
      return kind;
    }
  }
  throw FormatError(fmt::format("the job: no transport {}", text));
}

json defaults_to_json(const RequestDefaults& defaults) {
  return {{"max_new_tokens", defaults.max_new_tokens},
          {"temperature", defaults.temperature},
          {"top_k", defaults.top_k},
          {"top_p", defaults.top_p},
          {"seed", defaults.seed},
          {"stop", defaults.stop},
          {"ignore_eos", defaults.ignore_eos}};
}

RequestDefaults defaults_from_json(const json& in) {
  RequestDefaults defaults;
  in.at("max_new_tokens").get_to(defaults.max_new_tokens);
  in.at("temperature").get_to(defaults.temperature);
  in.at("top_k").get_to(defaults.top_k);
  in.at("top_p").get_to(defaults.top_p);
  in.at("seed").get_to(defaults.seed);
  in.at("stop").get_to(defaults.stop);
  in.at("ignore_eos").get_to(defaults.ignore_eos);
  return defaults;
}

json batch_to_json(const stage::BatchShape& batch) {
  return {{"gpu_batch_size", batch.gpu_batch_size},
          {"num_gpu_batches", batch.num_gpu_batches},
          {"inner_iterations", batch.inner_iterations},
          {"prefill_piece", batch.prefill_piece},
          {"page_tokens", batch.page_tokens},
          {"kv_type", static_cast<int>(batch.kv_format.type)},
          {"kv_group", batch.kv_format.group},
          {"attention_sparsity", batch.attention_sparsity}};
}

stage::BatchShape batch_from_json(const json& in) {
  stage::BatchShape batch;
  in.at("gpu_batch_size").get_to(batch.gpu_batch_size);
  in.at("num_gpu_batches").get_to(batch.num_gpu_batches);
  in.at("inner_iterations").get_to(batch.inner_iterations);
  in.at("prefill_piece").get_to(batch.prefill_piece);
  in.at("page_tokens").get_to(batch.page_tokens);
  batch.kv_format = {static_cast<device::KvType>(in.at("kv_type").get<int>()),
                     in.at("kv_group").get<std::int64_t>()};
  in.at("attention_sparsity").get_to(batch.attention_sparsity);
  return batch;
}

json compression_to_json(const Compression& compression) {
  json out = {{"group", compression.group}, {"embeddings", compression.embeddings}};
  if (compression.weights) {
    out["weights"] = to_string(*compression.weights);
  }
  return out;
}

Compression compression_from_json(const json& in) {
  Compression compression;
  in.at("group").get_to(compression.group);
  in.at("embeddings").get_to(compression.embeddings);
  if (in.contains("weights")) {
    compression.weights = parse_packing(in.at("weights").get<std::string>(), "--compress-weights");
  }
  return compression;
}

json policy_to_json(const stage::Policy& policy) {
  return {{"percent", stage::format_percent(policy.percent)},
          {"device_mem_bytes", policy.device_mem_bytes},
          {"cpu_mem_bytes", policy.cpu_mem_bytes},
          {"pinned_mem_bytes", policy.pinned_mem_bytes},
          {"disk_mem_bytes", policy.disk_mem_bytes},
          {"offload_dir", policy.offload_dir},
          {"pin_weights", static_cast<int>(policy.pin_weights)},
          {"cpu_attention", static_cast<int>(policy.cpu_attention)},
          {"widen_weights", static_cast<int>(policy.widen_weights)},
          {"weight_buffers", policy.weight_buffers}};
}

stage::Policy policy_from_json(const json& in) {
  stage::Policy policy;
  policy.percent = stage::parse_percent(in.at("percent").get<std::string>(), "--percent");
  in.at("device_mem_bytes").get_to(policy.device_mem_bytes);
  in.at("cpu_mem_bytes").get_to(policy.cpu_mem_bytes);
  in.at("pinned_mem_bytes").get_to(policy.pinned_mem_bytes);
  in.at("disk_mem_bytes").get_to(policy.disk_mem_bytes);
  in.at("offload_dir").get_to(policy.offload_dir);
  policy.pin_weights = static_cast<stage::Switch>(in.at("pin_weights").get<int>());
  policy.cpu_attention = static_cast<stage::Switch>(in.at("cpu_attention").get<int>());
  policy.widen_weights = static_cast<stage::Switch>(in.at("widen_weights").get<int>());
  in.at("weight_buffers").get_to(policy.weight_buffers);
  return policy;
}

json eval_to_json(const EvalConfig& eval) {
  return {{"perplexity_path", eval.perplexity_path},
          {"method", static_cast<int>(eval.method)},
          {"documents", static_cast<int>(eval.documents)},
          {"window", eval.window},
          {"stride", eval.stride},
          {"last_word_path", eval.last_word_path},
          {"logprobs_path", eval.logprobs_path},
          {"logprobs_output_path", eval.logprobs_output_path},
          {"report_path", eval.report_path}};
}

EvalConfig eval_from_json(const json& in) {
  EvalConfig eval;
  in.at("perplexity_path").get_to(eval.perplexity_path);
  eval.method = static_cast<PerplexityMethod>(in.at("method").get<int>());
  eval.documents = static_cast<DocumentSplit>(in.at("documents").get<int>());
  in.at("window").get_to(eval.window);
  in.at("stride").get_to(eval.stride);
  in.at("last_word_path").get_to(eval.last_word_path);
  in.at("logprobs_path").get_to(eval.logprobs_path);
  in.at("logprobs_output_path").get_to(eval.logprobs_output_path);
  in.at("report_path").get_to(eval.report_path);
  return eval;
}

void require(bool good, const char* flag, const std::string& must) {
  if (!good) {
    throw ConfigError(fmt::format("{}: {}", flag, must));
  }
}

void validate_batch(const stage::BatchShape& batch) {
  static constexpr std::int64_t kMost = 1 << 20;
  const auto count = [](std::int64_t value, const char* flag) {
    require(value >= 1 && value <= kMost, flag, fmt::format("must be 1 to {}", kMost));
  };
  count(batch.gpu_batch_size, "--gpu-batch-size");
  count(batch.num_gpu_batches, "--num-gpu-batches");
  count(batch.inner_iterations, "--inner-iterations");
  count(batch.prefill_piece, "--prefill-piece");
  require(batch.places() <= kMost, "--gpu-batch-size, --num-gpu-batches, --inner-iterations",
          fmt::format("their product must be at most {}", kMost));
  require(batch.attention_sparsity > 0 && batch.attention_sparsity <= 1, "--attention-sparsity",
          "must be above 0 and at most 1");
  require(batch.page_tokens == 16 || batch.page_tokens == 32 || batch.page_tokens == 64,
          "--page-tokens", "must be 16, 32 or 64");
}

void validate_defaults(const RequestDefaults& defaults) {
  require(defaults.max_new_tokens >= 1, "--max-new-tokens", "must be at least 1");
  require(defaults.temperature >= 0 && defaults.temperature <= 1e6, "--temperature",
          "must be 0 (greedy) or more");
  require(defaults.top_k >= 0, "--top-k", "must be 0 (off) or more");
  require(defaults.top_p > 0 && defaults.top_p <= 1, "--top-p", "must be above 0 and at most 1");
  for (const auto& stop : defaults.stop) {
    require(!stop.empty(), "--stop", "must not be empty");
  }
}

void validate_run(const JobConfig& config) {
  require(!config.prompts_path.empty(), "--prompts", "is missing: a JSON Lines file, or -");
  require(!config.output_path.empty(), "--output", "is missing: a file to make, or -");
  require(!config.ordered || config.output_path != "-", "--ordered",
          "needs a file at --output, not -");
  require(config.num_logprobs >= -1 && config.num_logprobs <= 1000, "--logprobs",
          "must be 0 to 1000");
  validate_defaults(config.defaults);
}

void validate_eval(const EvalConfig& eval) {
  require(
      !eval.perplexity_path.empty() || !eval.last_word_path.empty() || !eval.logprobs_path.empty(),
      "--perplexity, --last-word, --logprobs", "give at least one of them");
  require(eval.logprobs_path.empty() == eval.logprobs_output_path.empty(), "--logprobs-output",
          "goes together with --logprobs: give both or neither");
  require(eval.report_path.empty() || eval.report_path != eval.logprobs_output_path,
          "--logprobs-output", "must be another file than --output");
  require(eval.report_path != "-" && eval.logprobs_output_path != "-",
          "--output, --logprobs-output", "must be files; the table goes to standard output");
  require(eval.stride == 0 || eval.method == PerplexityMethod::rolling, "--stride",
          "needs --perplexity-method rolling");
}

}  // namespace

std::string to_json(const JobConfig& config) {
  json out = {{"model_path", config.model_path},
              {"tokenizer_path", config.tokenizer_path},
              {"prompts_path", config.prompts_path},
              {"output_path", config.output_path},
              {"overwrite", config.overwrite},
              {"ordered", config.ordered},
              {"skip_bad_requests", config.skip_bad_requests},
              {"defaults", defaults_to_json(config.defaults)},
              {"num_logprobs", config.num_logprobs},
              {"prompt_logprobs", config.prompt_logprobs},
              {"transport", to_string(config.transport)},
              {"stages", config.stages},
              {"layers_per_stage", config.layers_per_stage},
              {"batch", batch_to_json(config.batch)},
              {"compression", compression_to_json(config.compression)},
              {"inner_iterations_given", config.inner_iterations_given},
              {"device", config.device},
              {"threads", config.threads},
              {"isa", config.isa},
              {"policies", json::array()},
              {"schedule", stage::to_string(config.schedule)},
              {"overlap", config.overlap},
              {"disk_backend", static_cast<int>(config.disk_backend)},
              {"timeout_seconds", config.timeout_seconds},
              {"dry_run", config.dry_run},
              {"report_whole_job", config.report_whole_job},
              {"log_level", config.log_level},
              {"test_delay_seed", config.test_delay_seed},
              {"test_staging", config.test_staging}};
  for (const auto& policy : config.policies) {
    out["policies"].push_back(policy_to_json(policy));
  }
  if (config.eval) {
    out["eval"] = eval_to_json(*config.eval);
  }
  if (config.dummy_seed) {
    out["dummy_seed"] = *config.dummy_seed;
    out["dummy_spec"] = model::spec_to_json(config.dummy_spec);
  }
  return out.dump();
}

JobConfig config_from_json(const std::string& text) {
  const auto in = json::parse(text);
  JobConfig config;
  in.at("model_path").get_to(config.model_path);
  in.at("tokenizer_path").get_to(config.tokenizer_path);
  in.at("prompts_path").get_to(config.prompts_path);
  in.at("output_path").get_to(config.output_path);
  in.at("overwrite").get_to(config.overwrite);
  in.at("ordered").get_to(config.ordered);
  in.at("skip_bad_requests").get_to(config.skip_bad_requests);
  config.defaults = defaults_from_json(in.at("defaults"));
  in.at("num_logprobs").get_to(config.num_logprobs);
  in.at("prompt_logprobs").get_to(config.prompt_logprobs);
  config.transport = transport_from(in.at("transport").get<std::string>());
  in.at("stages").get_to(config.stages);
  in.at("layers_per_stage").get_to(config.layers_per_stage);
  config.batch = batch_from_json(in.at("batch"));
  config.compression = compression_from_json(in.at("compression"));
  in.at("inner_iterations_given").get_to(config.inner_iterations_given);
  in.at("device").get_to(config.device);
  in.at("threads").get_to(config.threads);
  in.at("isa").get_to(config.isa);
  config.policies.clear();
  for (const auto& policy : in.at("policies")) {
    config.policies.push_back(policy_from_json(policy));
  }
  config.schedule = stage::parse_schedule(in.at("schedule").get<std::string>(), "--schedule");
  in.at("overlap").get_to(config.overlap);
  config.disk_backend = static_cast<offload::DiskBackend>(in.at("disk_backend").get<int>());
  in.at("timeout_seconds").get_to(config.timeout_seconds);
  in.at("dry_run").get_to(config.dry_run);
  in.at("report_whole_job").get_to(config.report_whole_job);
  in.at("log_level").get_to(config.log_level);
  in.at("test_delay_seed").get_to(config.test_delay_seed);
  in.at("test_staging").get_to(config.test_staging);
  if (in.contains("eval")) {
    config.eval = eval_from_json(in.at("eval"));
  }
  if (in.contains("dummy_seed")) {
    config.dummy_seed = in.at("dummy_seed").get<std::uint64_t>();
    config.dummy_spec = model::spec_from_json(in.at("dummy_spec").get<std::string>(), "the job");
  }
  return config;
}

void validate(const JobConfig& config) {
  require(config.model_path.empty() == config.dummy_seed.has_value(), "--model",
          "give a weight store, or --dummy SEED with --spec FILE, and not both");
  require(config.stages >= 1 && config.stages <= 4096, "--stages", "must be 1 to 4096");
  static_cast<void>(parse_device(config.device, "--device"));
  require(config.threads >= 0 && config.threads <= 4096, "--threads",
          "must be 1 to 4096, or 0 for all CPUs");
  require(config.timeout_seconds >= 0.1 && config.timeout_seconds <= 1e7, "--timeout",
          "must be 0.1 to 10000000 seconds");
  require(config.policies.size() == 1 ||
              config.policies.size() == static_cast<std::size_t>(config.stages),
          "--stage-policy",
          fmt::format("{} policies for {} stages", config.policies.size(), config.stages));
  for (const auto& policy : config.policies) {
    stage::validate(policy);
  }
  if (config.eval) {
    validate_eval(*config.eval);
  } else {
    validate_run(config);
  }
  validate_batch(config.batch);
}

}  // namespace stagecoach::job
