#include "job/run_rank.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/system.hpp"
#include "base/units.hpp"
#include "comm/collectives.hpp"
#include "comm/nccl_transport.hpp"
#include "job/agreement.hpp"
#include "job/coordinator.hpp"
#include "job/stage_setup.hpp"
#include "job/thread_share.hpp"
#include "job/wire.hpp"
#include "job/workload.hpp"
#include "stage/engine.hpp"
#include "stage/memory_report.hpp"

namespace stagecoach::job {
namespace {

stage::JobDemand demand_of(const std::vector<Request>& requests, const stage::BatchShape& batch) {
  std::vector<stage::SequenceLength> lengths;
  lengths.reserve(requests.size());
  for (const auto& request : requests) {
    const stage::SequenceInput sequence{
        .prompt = request.prompt_tokens, .max_new_tokens = request.max_new_tokens, .sampling = {}};
    lengths.push_back({sequence.fed_prompt(), sequence.stored_tokens()});
  }
  return stage::demand_of(lengths, batch);
}

/// One rank of a job, in the order of its life.
class Rank {
 public:
  Rank(JobConfig config, comm::Transport& transport, AbortSignal& abort, const Log& log)
      : config_(std::move(config)), transport_(transport), abort_(abort), log_(log) {}

  void open(const std::function<ModelAccess()>& open_model);
  void choose_wire();
  void read_requests();
  void plan_memory();
  void show_plan() const;
  void open_output();
  void take_memory();
  void load_weights();
  RunReport run();

  [[nodiscard]] bool dry_run() const { return config_.dry_run; }

 private:
  [[nodiscard]] bool first() const { return transport_.rank() == 0; }
  void connect_nccl();
  stage::JobDemand share_demand(stage::JobDemand demand);
  void drive(stage::Engine& engine, RunReport& report);
  void coordinate(stage::Engine& engine, RunReport& report);
  void follow(stage::Engine& engine);
  [[nodiscard]] WholeJob gather_whole_job(const stage::EngineTotals& totals);
  [[nodiscard]] StageReport report(const stage::Engine& engine) const;
  void show(const StageReport& report) const;

  JobConfig config_;
  comm::Transport& transport_;
  AbortSignal& abort_;
  const Log& log_;
  ModelAccess model_;
  std::unique_ptr<StageSetup> setup_;
  stage::JobDemand demand_;
  Surroundings surroundings_;
  std::unique_ptr<comm::Transport> nccl_;  ///< where hidden states go over NCCL
  std::unique_ptr<Workload> work_;         ///< on rank 0 alone
};

void Rank::open(const std::function<ModelAccess()>& open_model) {
  const int threads = config_.threads > 0 ? config_.threads : share_cpus(transport_);
  agree(transport_, "opening the model", [&] {
    model_ = open_model();
    setup_ = std::make_unique<StageSetup>(config_, model_, transport_, threads, abort_);
  });
  agree_on(transport_, {{"version of stagecoach", STAGECOACH_VERSION},
                        {"configuration", hash_to_hex(hash_string(to_json(config_)))},
                        {"model", hash_to_hex(model_.digest)},
                        {"arithmetic", setup_->device().instruction_set()}});
}

/// Before memory is planned: where hidden states lie depends on it, and NCCL takes device memory.
void Rank::choose_wire() {
  const auto ends = gather_wire_ends(
      transport_, {.host = host_name(),
                   .device = setup_->where(),
                   .hidden_on_device = setup_->hidden_on_device(),
                   .built_with_nccl = comm::built_with_nccl(),
                   .mpi_takes_device_memory = transport_.hidden_in_device_memory()});
  agree(transport_, "choosing the wire", [&] {
    const auto choice = job::choose_wire(config_.transport, ends);
    surroundings_ = {.ranks_of_gpu = ranks_of_gpu(ends, transport_.rank()),
                     .wire_on_device = choice.wire != Wire::host_memory};
    if (first() && !choice.reason.empty()) {
      log_.info("{}", choice.reason);
    }
    if (choice.wire == Wire::nccl && !dry_run()) {
      connect_nccl();
    }
  });
}

void Rank::connect_nccl() try {
  const std::chrono::duration<double> timeout(config_.timeout_seconds);
  nccl_ = comm::make_nccl_transport(
      transport_,
      {.transport = {.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(timeout)},
       .device = setup_->where().index},
      abort_);
} catch (const TransportError& error) {  // of NCCL's: the ranks can still agree on it
  throw Error(error.what());
}

void Rank::read_requests() {
  agree(transport_, "reading the requests", [&] {
    if (!first()) {
      return;
    }
    work_ = read_workload(config_, model_, setup_->device().instruction_set(), log_);
    demand_ = demand_of(work_->requests(), setup_->shape().batch);
  });
  demand_ = share_demand(demand_);
}

stage::JobDemand Rank::share_demand(stage::JobDemand demand) {
  ByteWriter out;
  out.put(demand.kv.longest_pages);
  out.put(demand.kv.wanted_pages);
  out.put(demand.longest_prompt);
  const auto bytes = comm::broadcast(transport_, std::move(out).take(), "the need for KV pages");
  ByteReader in(bytes);
  demand.kv.longest_pages = in.get<std::int64_t>();
  demand.kv.wanted_pages = in.get<std::int64_t>();
  demand.longest_prompt = in.get<std::int64_t>();
  return demand;
}

/// Every stage finds what fits; all use the smallest number of KV pages.
void Rank::plan_memory() {
  agree(transport_, "planning memory", [&] { setup_->plan(demand_, surroundings_); });
  auto pages = setup_->memory().kv_pages_per_layer;
  ByteWriter out;
  out.put(pages);
  for (const auto& bytes :
       comm::all_gather(transport_, std::move(out).take(), "the number of KV pages")) {
    pages = std::min(pages, ByteReader(bytes).get<std::int64_t>());
  }
  setup_->settle(pages);
}

void Rank::show_plan() const {
  const auto& part = setup_->shape().contents;
  const auto mine = fmt::format("stage {} on {} ({}): layers {} to {}{}{}, percent {}\n{}",
                                transport_.rank(), host_name(), setup_->device().description(),
                                part.first_layer, part.first_layer + part.layers - 1,
                                part.embedding ? ", embedding" : "", part.head ? ", head" : "",
                                stage::format_percent(setup_->stage_plan().policy.percent),
                                stage::format_report(setup_->memory()));
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
            work_->requests().size(), work_->skipped(), setup_->shape().batch.places(),
            setup_->memory().kv_pages_per_layer, demand_.kv.wanted_pages);
}

void Rank::open_output() {
  agree(transport_, "opening the output", [&] {
    if (first()) {
      work_->open_output();
    }
  });
}

void Rank::take_memory() {
  agree(transport_, "taking memory", [&] { setup_->take_memory(); });
}

void Rank::load_weights() {
  const auto start = std::chrono::steady_clock::now();
  agree(transport_, "loading the weights", [&] { setup_->load_weights(); });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const auto bytes = setup_->weights().loaded_bytes();
  log_.info("loaded {} of weights in {:.2f} s, {}/s", format_bytes(bytes), seconds.count(),
            format_bytes(static_cast<std::size_t>(static_cast<double>(bytes) / seconds.count())));
  for (const auto& note : setup_->notes()) {
    log_.warning("{}", note);
  }
}

RunReport Rank::run() {
  RunReport run;
  std::unique_ptr<stage::Engine> engine;
  agree(transport_, "starting the streams",
        [&] { engine = setup_->make_engine(nccl_ != nullptr ? *nccl_ : transport_); });
  if (const auto disk = engine->disk_description(); !disk.empty()) {
    log_.info("disk: {}", disk);
  }
  try {
    drive(*engine, run);
  } catch (...) {
    // Before the engine's streams are joined: they may be waiting for messages that never come.
    abort_.raise(std::current_exception());
    throw;
  }
  run.stages = {report(*engine)};
  if (config_.report_whole_job) {
    run.whole = gather_whole_job(run.stages.front().totals);
  }
  show(run.stages.front());
  return run;
}

WholeJob Rank::gather_whole_job(const stage::EngineTotals& totals) {
  WholeJob whole{.plans = {},
                 .totals = {},
                 .requests = first() ? sizes_of(work_->requests()) : std::vector<RequestSize>(),
                 .longest_pages = demand_.kv.longest_pages,
                 .kv_pages_per_layer = setup_->memory().kv_pages_per_layer};
  gather_stages(transport_, config_, setup_->stage_plan(), totals, whole);
  return whole;
}

StageReport Rank::report(const stage::Engine& engine) const {
  return {.memory = setup_->memory(),
          .totals = engine.totals(),
          .peak_bytes = setup_->peak_bytes(),
          .live_pages = engine.pages().live().total(),
          .open_pages = engine.pages().open_pages()};
}

void Rank::show(const StageReport& report) const {
  const auto& totals = report.totals;
  const auto bytes_of = [&](stage::Resource resource) {
    return totals.bytes[static_cast<std::size_t>(resource)];
  };
  const auto moved = [&](stage::Resource resource) {
    return format_bytes(static_cast<std::size_t>(bytes_of(resource)));
  };
  const auto a_token = [&](std::uint64_t bytes) {
    return format_bytes(static_cast<std::size_t>(bytes) /
                        static_cast<std::size_t>(std::max<std::int64_t>(totals.rows, 1)));
  };
  const auto taken = [&](offload::Tier tier) {
    return fmt::format("{} {} of {}", to_string(tier),
                       format_bytes(static_cast<std::size_t>(report.peak_bytes.of(tier))),
                       format_bytes(report.memory.total_bytes(tier)));
  };
  log_.info("memory taken at most, of what was planned: {}, {}, {}; whole process {}",
            taken(offload::Tier::device), taken(offload::Tier::cpu), taken(offload::Tier::disk),
            format_bytes(peak_resident_bytes()));
  log_.info("moved: {} to the device, {} from it; {} and {} for each of {} tokens",
            moved(stage::Resource::h2d), moved(stage::Resource::d2h),
            a_token(static_cast<std::uint64_t>(bytes_of(stage::Resource::h2d))),
            a_token(static_cast<std::uint64_t>(bytes_of(stage::Resource::d2h))), totals.rows);
  if (totals.disk_read.requests + totals.disk_write.requests > 0) {
    const auto wanted = static_cast<double>(totals.weight_bytes_wanted);
    log_.info(
        "disk: read {} in {:.2f} busy s, {:.0f} MB/s ({} of weights, {:.3f} times their "
        "size), {} for each token; wrote {}",
        format_bytes(totals.disk_read.bytes_read), totals.disk_read.busy_seconds,
        static_cast<double>(totals.disk_read.bytes_read) * 1e-6 /
            std::max(totals.disk_read.busy_seconds, 1e-9),
        format_bytes(static_cast<std::size_t>(totals.weight_bytes_read)),
        wanted > 0 ? static_cast<double>(totals.weight_bytes_read) / wanted : 1.0,
        a_token(totals.disk_read.bytes_read), format_bytes(totals.disk_write.bytes_written));
  }
}

void Rank::drive(stage::Engine& engine, RunReport& report) {
  comm::barrier(transport_, "the start");
  if (first()) {
    coordinate(engine, report);
  } else {
    follow(engine);
  }
  comm::barrier(transport_, "the end");
}

void Rank::coordinate(stage::Engine& engine, RunReport& report) {
  Progress progress(log_, static_cast<std::int64_t>(work_->requests().size()));
  Coordinator coordinator({.batch = setup_->shape().batch,
                           .kv_pages_per_layer = setup_->memory().kv_pages_per_layer,
                           .num_logprobs = work_->num_logprobs(),
                           .eos_token = model_.spec.eos_token},
                          work_->requests(), work_->tokenizer(), engine, transport_, work_->sink(),
                          progress);
  coordinator.run();
  work_->finish(report);
  report.totals = progress.finish();
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

std::optional<RunReport> run_rank(const JobConfig& config, comm::Transport& transport,
                                  AbortSignal& abort, const Log& log,
                                  const std::function<ModelAccess()>& open) {
  Rank rank(config, transport, abort, log);
  rank.open(open);
  rank.choose_wire();
  rank.read_requests();
  rank.plan_memory();
  rank.show_plan();
  if (rank.dry_run()) {
    return std::nullopt;
  }
  rank.take_memory();
  rank.open_output();
  rank.load_weights();
  return rank.run();
}

}  // namespace stagecoach::job
