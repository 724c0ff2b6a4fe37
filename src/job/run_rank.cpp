#include "job/run_rank.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/system.hpp"
#include "base/units.hpp"
#include "comm/collectives.hpp"
#include "device/host/host_device.hpp"
#include "job/agreement.hpp"
#include "job/coordinator.hpp"
#include "job/request_reader.hpp"
#include "job/result_writer.hpp"
#include "job/thread_share.hpp"
#include "offload/kv_pages.hpp"
#include "stage/engine.hpp"
#include "stage/memory_report.hpp"
#include "stage/partition.hpp"

namespace stagecoach::job {
namespace {

constexpr int kReaderThreads = 4;

/// --overwrite must not empty what the job reads.
void refuse_to_overwrite_inputs(const JobConfig& config) {
  for (const auto& input : {config.prompts_path, config.model_path}) {
    std::error_code missing;
    if (std::filesystem::equivalent(config.output_path, input, missing) && !missing) {
      throw ConfigError(fmt::format("--output {} is also an input of the job: choose another file",
                                    config.output_path));
    }
  }
}

/// One rank of a job, in the order of its life.
class Rank {
 public:
  Rank(JobConfig config, comm::Transport& transport, AbortSignal& abort, const Log& log)
      : config_(std::move(config)), transport_(transport), abort_(abort), log_(log) {
    if (!config_.inner_iterations_given) {
      config_.batch.inner_iterations = stage::default_inner_iterations(transport.size());
    }
  }

  void open(const std::function<ModelAccess()>& open_model);
  void read_requests();
  void plan_memory();
  void show_plan() const;
  void open_output();
  void load_weights();
  std::optional<RunTotals> run();

  [[nodiscard]] bool dry_run() const { return config_.dry_run; }

 private:
  [[nodiscard]] bool first() const { return transport_.rank() == 0; }
  [[nodiscard]] stage::KvDemand kv_demand() const;
  [[nodiscard]] device::ScratchShape scratch_shape() const;
  [[nodiscard]] std::size_t memory_budget() const;
  void share_demand();
  void drive(stage::Engine& engine, std::optional<RunTotals>& totals);
  RunTotals coordinate(stage::Engine& engine);
  void follow(stage::Engine& engine);

  JobConfig config_;
  comm::Transport& transport_;
  AbortSignal& abort_;
  const Log& log_;
  ModelAccess model_;
  std::unique_ptr<device::Device> device_;
  stage::StageShape shape_;
  stage::KvDemand demand_;
  stage::MemoryReport memory_;
  std::unique_ptr<offload::StageWeights> weights_;
  // On rank 0 alone:
  std::optional<model::Tokenizer> tokenizer_;
  RequestList requests_;
  std::unique_ptr<ResultWriter> writer_;
};

void Rank::open(const std::function<ModelAccess()>& open_model) {
  const int threads = config_.threads > 0 ? config_.threads : share_cpus(transport_);
  agree(transport_, "opening the model", [&] {
    model_ = open_model();
    device_ = device::make_host_device({.threads = threads, .isa = config_.isa}, abort_);
    const auto parts =
        stage::partition_layers(model_.spec.layers, transport_.size(), config_.layers_per_stage);
    shape_ = {.spec = model_.spec,
              .contents = parts[static_cast<std::size_t>(transport_.rank())],
              .batch = config_.batch};
  });
  agree_on(transport_, {{"version of stagecoach", STAGECOACH_VERSION},
                        {"configuration", hash_to_hex(hash_string(to_json(config_)))},
                        {"model", hash_to_hex(model_.digest)},
                        {"arithmetic", device_->instruction_set()}});
}

void Rank::read_requests() {
  agree(transport_, "reading the requests", [&] {
    if (!first()) {
      return;
    }
    refuse_to_overwrite_inputs(config_);
    if (!model_.tokenizer.vocab_json.empty()) {
      tokenizer_.emplace(model_.tokenizer, model_.spec.vocab);
    }
    requests_ = job::read_requests(config_.prompts_path, config_.defaults, model_.spec,
                                   tokenizer_ ? &*tokenizer_ : nullptr,
                                   config_.skip_bad_requests ? OnError::skip : OnError::stop, log_);
    demand_ = kv_demand();
  });
  share_demand();
}

/// Pages of the longest request, and of as many of the longest ones as there are places.
stage::KvDemand Rank::kv_demand() const {
  std::vector<std::int64_t> pages;
  for (const auto& request : requests_.requests) {
    const auto stored =
        static_cast<std::int64_t>(request.prompt_tokens.size()) + request.max_new_tokens - 1;
    pages.push_back(offload::pages_for(stored, config_.batch.page_tokens));
  }
  std::sort(pages.rbegin(), pages.rend());
  pages.resize(std::min(pages.size(), static_cast<std::size_t>(config_.batch.places())));
  stage::KvDemand demand;
  for (const auto count : pages) {
    demand.longest_pages = std::max(demand.longest_pages, count);
    demand.wanted_pages += count;
  }
  return demand;
}

void Rank::share_demand() {
  ByteWriter out;
  out.put(demand_.longest_pages);
  out.put(demand_.wanted_pages);
  const auto bytes = comm::broadcast(transport_, std::move(out).take(), "the need for KV pages");
  ByteReader in(bytes);
  demand_.longest_pages = in.get<std::int64_t>();
  demand_.wanted_pages = in.get<std::int64_t>();
}

device::ScratchShape Rank::scratch_shape() const {
  return {.max_in_features = std::max(model_.spec.hidden, model_.spec.ffn),
          .head_dim = model_.spec.head_dim,
          .page_tokens = config_.batch.page_tokens,
          .vocab = model_.spec.vocab};
}

std::size_t Rank::memory_budget() const {
  const auto share =
      available_memory_bytes() / static_cast<std::size_t>(transport_.ranks_on_this_host());
  if (config_.device_mem_bytes == 0) {
    return share / 10 * 9;
  }
  if (config_.device_mem_bytes > share) {
    throw OutOfMemory(fmt::format(
        "--device-mem {}: this machine has {} free for each of its {} stages; lower it, or use "
        "fewer stages a machine",
        format_bytes(config_.device_mem_bytes), format_bytes(share),
        transport_.ranks_on_this_host()));
  }
  return config_.device_mem_bytes;
}

/// Every stage finds what fits; all use the smallest number of KV pages.
void Rank::plan_memory() {
  const auto scratch = device_->scratch_bytes(scratch_shape());
  const auto staging = offload::StageWeights::staging_bytes(kReaderThreads);
  std::size_t budget = 0;
  agree(transport_, "planning memory", [&] {
    budget = memory_budget();
    memory_ = stage::plan_memory(shape_, demand_, budget, scratch, staging);
  });
  ByteWriter out;
  out.put(memory_.kv_pages_per_layer);
  auto pages = memory_.kv_pages_per_layer;
  for (const auto& bytes :
       comm::all_gather(transport_, std::move(out).take(), "the number of KV pages")) {
    pages = std::min(pages, ByteReader(bytes).get<std::int64_t>());
  }
  memory_ = stage::plan_memory_with_pages(shape_, pages, budget, scratch, staging);
}

void Rank::show_plan() const {
  const auto& part = shape_.contents;
  const auto mine =
      fmt::format("stage {} on {} ({}): layers {} to {}{}{}\n{}", transport_.rank(), host_name(),
                  device_->description(), part.first_layer, part.first_layer + part.layers - 1,
                  part.embedding ? ", embedding" : "", part.head ? ", head" : "",
                  stage::format_report(memory_));
  const auto all =
      comm::all_gather(transport_, std::as_bytes(std::span(mine)), "the memory reports");
  if (!first()) {
    return;
  }
  std::string text;
  for (const auto& bytes : all) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  if (config_.dry_run) {
    log_.info("configuration {}", to_json(config_));
  }
  log_.info("memory\n{}", text);
  log_.info("{} requests ({} skipped), {} places, KV cache for {} of {} pages wanted a layer",
            requests_.requests.size(), requests_.skipped, config_.batch.places(),
            memory_.kv_pages_per_layer, demand_.wanted_pages);
}

void Rank::open_output() {
  agree(transport_, "opening the output", [&] {
    if (first()) {
      writer_ = std::make_unique<ResultWriter>(
          ResultWriterOptions{.path = config_.output_path,
                              .overwrite = config_.overwrite,
                              .ordered = config_.ordered,
                              .logprobs = config_.num_logprobs >= 0,
                              .prompt_logprobs = config_.prompt_logprobs},
          tokenizer_ ? &*tokenizer_ : nullptr);
    }
  });
}

void Rank::load_weights() {
  const auto start = std::chrono::steady_clock::now();
  agree(transport_, "loading the weights", [&] {
    device_->reserve_scratch(scratch_shape());
    weights_ = std::make_unique<offload::StageWeights>(
        shape_.spec, shape_.contents, *model_.weights, *device_, kReaderThreads, nullptr);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const auto bytes = offload::StageWeights::size_bytes(shape_.spec, shape_.contents);
  log_.info("loaded {} of weights in {:.2f} s, {}/s", format_bytes(bytes), seconds.count(),
            format_bytes(static_cast<std::size_t>(static_cast<double>(bytes) / seconds.count())));
}

std::optional<RunTotals> Rank::run() {
  std::optional<RunTotals> totals;
  stage::Engine engine(shape_, memory_.kv_pages_per_layer, *weights_, *device_, transport_, abort_);
  try {
    drive(engine, totals);
  } catch (...) {
    // Before the engine's streams are joined: they may be waiting for messages that never come.
    abort_.raise(std::current_exception());
    throw;
  }
  return totals;
}

void Rank::drive(stage::Engine& engine, std::optional<RunTotals>& totals) {
  comm::barrier(transport_, "the start");
  if (first()) {
    totals = coordinate(engine);
  } else {
    follow(engine);
  }
  comm::barrier(transport_, "the end");
}

RunTotals Rank::coordinate(stage::Engine& engine) {
  Progress progress(log_, static_cast<std::int64_t>(requests_.requests.size()));
  Coordinator coordinator({.batch = shape_.batch,
                           .kv_pages_per_layer = memory_.kv_pages_per_layer,
                           .num_logprobs = config_.num_logprobs,
                           .prompt_logprobs = config_.prompt_logprobs,
                           .eos_token = model_.spec.eos_token},
                          requests_.requests, tokenizer_ ? &*tokenizer_ : nullptr, engine,
                          transport_, *writer_, progress);
  coordinator.run();
  writer_->close();
  if (config_.ordered) {
    write_ordered(config_.output_path, requests_.requests, config_.overwrite);
  }
  return progress.finish();
}

void Rank::follow(stage::Engine& engine) {
  while (true) {
    auto visit = std::make_shared<const stage::Visit>(stage::parse_visit(transport_.receive_message(
        transport_.rank() - 1, comm::Channel::plan, "the next visit's plan")));
    engine.issue(visit);
    if (visit->last) {
      engine.finish();
      return;
    }
  }
}

}  // namespace

std::optional<RunTotals> run_rank(const JobConfig& config, comm::Transport& transport,
                                  AbortSignal& abort, const Log& log,
                                  const std::function<ModelAccess()>& open) {
  Rank rank(config, transport, abort, log);
  rank.open(open);
  rank.read_requests();
  rank.plan_memory();
  rank.show_plan();
  if (rank.dry_run()) {
    return std::nullopt;
  }
  rank.open_output();
  rank.load_weights();
  return rank.run();
}

}  // namespace stagecoach::job
