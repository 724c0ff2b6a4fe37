#include "job/stage_setup.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/system.hpp"
#include "base/units.hpp"
#include "device/host/host_device.hpp"
#include "offload/spill_file.hpp"
#include "stage/partition.hpp"

namespace stagecoach::job {
namespace {

constexpr int kReaderThreads = 4;

/// Nine tenths of what is free, for what nobody gave a number for.
constexpr std::size_t most_of(std::size_t bytes) { return bytes / 10 * 9; }

stage::BatchShape batch_of(const JobConfig& config, int stages) {
  auto batch = config.batch;
  if (!config.inner_iterations_given) {
    batch.inner_iterations = 0;
  }
  return stage::shape_for(batch, config.schedule, stages);
}

}  // namespace

StageSetup::StageSetup(const JobConfig& config, const ModelAccess& model,
                       const comm::Transport& transport, int threads, AbortSignal& abort)
    : config_(config),
      model_(model),
      abort_(abort),
      threads_(threads),
      ranks_on_this_host_(transport.ranks_on_this_host()),
      policy_(config.policy(transport.rank())) {
  make_device(0);
  const auto parts =
      stage::partition_layers(model.spec.layers, transport.size(), config.layers_per_stage);
  shape_ = {.spec = model.spec,
            .contents = parts[static_cast<std::size_t>(transport.rank())],
            .batch = batch_of(config, transport.size()),
            .weights = model.format};
}

void StageSetup::make_device(std::size_t memory_bytes) {
  device_ = device::make_host_device({.threads = threads_,
                                      .isa = config_.isa,
                                      .memory_bytes = memory_bytes,
                                      .host_addressable = !config_.test_staging,
                                      .delay_seed = config_.test_delay_seed},
                                     abort_);
}

device::ScratchShape StageSetup::scratch_shape() const {
  return {.max_in_features = std::max(model_.spec.hidden, model_.spec.ffn),
          .head_dim = model_.spec.head_dim,
          .page_tokens = shape_.batch.page_tokens,
          .vocab = model_.spec.vocab,
          .sparse_tokens = shape_.batch.attention_sparsity < 1
                               ? demand_.kv.longest_pages * shape_.batch.page_tokens
                               : 0};
}

/// The host's device memory is the machine's DRAM: device and CPU budgets share it.
stage::Budgets StageSetup::find_budgets() const {
  const auto share = available_memory_bytes() / static_cast<std::size_t>(ranks_on_this_host_);
  const auto check = [&](std::size_t bytes, const char* flags) {
    if (bytes > share) {
      throw OutOfMemory(
          fmt::format("{} {}: this machine has {} free for each of its {} stages; lower it, or use "
                      "fewer stages a machine",
                      flags, format_bytes(bytes), format_bytes(share), ranks_on_this_host_));
    }
  };
  check(policy_.device_mem_bytes, "--device-mem");
  check(policy_.cpu_mem_bytes, "--cpu-mem");
  check(policy_.device_mem_bytes + policy_.cpu_mem_bytes, "--device-mem and --cpu-mem, together");
  const bool given = policy_.device_mem_bytes + policy_.cpu_mem_bytes > 0;
  const auto or_else = [](std::size_t bytes, std::size_t otherwise) {
    return bytes > 0 ? bytes : otherwise;
  };
  stage::Budgets budgets;
  budgets.together = given ? share : most_of(share);
  budgets.device = or_else(policy_.device_mem_bytes, budgets.together);
  budgets.cpu = or_else(policy_.cpu_mem_bytes, budgets.together);
  budgets.pinned = std::min(or_else(policy_.pinned_mem_bytes, budgets.cpu),
                            lockable_bytes() / static_cast<std::size_t>(ranks_on_this_host_));
  if (!policy_.offload_dir.empty()) {
    budgets.disk_free = static_cast<std::size_t>(offload::free_disk_bytes(policy_.offload_dir)) /
                        static_cast<std::size_t>(ranks_on_this_host_);
    budgets.disk = or_else(policy_.disk_mem_bytes, most_of(budgets.disk_free));
  }
  return budgets;
}

stage::ScratchBytes StageSetup::scratch_bytes() const {
  const auto scratch = device_->scratch_bytes(scratch_shape());
  return {.device = scratch,
          .cpu = scratch,
          .loading = offload::StageWeights::staging_bytes(*model_.weights, kReaderThreads)};
}

void StageSetup::plan(const JobDemand& demand) {
  demand_ = demand;
  shape_.batch.longest_prompt = demand.longest_prompt;
  const stage::PlanOptions options{.schedule = config_.schedule,
                                   .overlap = config_.overlap,
                                   .direct = device_->host_addressable(),
                                   .packed_product_rows = device_->packed_product_rows()};
  planned_ =
      stage::plan_stage(shape_, policy_, options, demand.kv, find_budgets(), scratch_bytes());
  const auto& weights = planned_.plan.weights;
  offload::StageWeights::check_source(weights.image, weights.cut, *model_.weights);
}

void StageSetup::settle(std::int64_t kv_pages_per_layer) {
  planned_ = stage::plan_with_pages(planned_, demand_.kv, kv_pages_per_layer, scratch_bytes());
}

void StageSetup::take_memory() {
  const auto& memory = planned_.memory;
  make_device(memory.total_bytes(offload::Tier::device));
  device_->reserve_scratch(scratch_shape());
  auto dram_bytes = memory.total_bytes(offload::Tier::cpu);
  if (planned_.plan.kv.offloaded()) {
    const auto scratch = scratch_bytes().cpu;
    cpu_ = device::make_host_device({.threads = threads_,
                                     .isa = config_.isa,
                                     .memory_bytes = scratch,
                                     .delay_seed = config_.test_delay_seed},
                                    abort_);
    cpu_->reserve_scratch(scratch_shape());
    dram_bytes -= scratch;
  }
  dram_ = std::make_unique<MemoryBudget>("CPU memory", dram_bytes);
  stage_memory_ = std::make_unique<stage::StageMemory>(planned_.plan, *device_, *dram_);
  if (const auto& spill = stage_memory_->spill()) {
    notes_.insert(notes_.end(), spill->notes.begin(), spill->notes.end());
  }
}

void StageSetup::load_weights() {
  const auto& weights = planned_.plan.weights;
  weights_ = std::make_unique<offload::StageWeights>(shape_.spec, shape_.contents, shape_.weights,
                                                     weights.image, weights.cut, *model_.weights,
                                                     *device_, *dram_, kReaderThreads, nullptr);
  const auto dram = weights_->dram();
  if (weights.pinned) {
    pinned_ = MemoryLock::try_lock(dram);
    if (!pinned_ && policy_.pin_weights == stage::Switch::on) {
      throw OutOfMemory(
          fmt::format("--pin-weights on: the system refuses to lock {}; raise "
                      "'ulimit -l' or use --pin-weights auto",
                      format_bytes(dram.size())));
    }
  }
  if (!dram.empty() && !pinned_ && policy_.pin_weights == stage::Switch::automatic) {
    notes_.push_back(fmt::format("weights in DRAM are not pinned: {} of {} may be locked",
                                 format_bytes(planned_.memory.budgets.pinned),
                                 format_bytes(dram.size())));
  }
  if (const auto* file = model_.weights->file(); weights.on_disk() && !file->direct()) {
    notes_.push_back(
        fmt::format("{}: its file system refuses direct reads: weights come through "
                    "the page cache",
                    file->path()));
  }
}

std::unique_ptr<stage::Engine> StageSetup::make_engine(comm::Transport& transport) const try {
  return std::make_unique<stage::Engine>(stage::EngineParts{
      .plan = planned_.plan,
      .memory = *stage_memory_,
      .weights = *weights_,
      .device = *device_,
      .cpu = cpu_.get(),
      .transport = transport,
      .abort = abort_,
      .disk = {.backend = config_.disk_backend, .delay_seed = config_.test_delay_seed}});
} catch (const IoError& error) {  // nothing else than a backend that was asked for
  throw ConfigError(
      fmt::format("--disk-io uring: {}; use --disk-io threads or auto", error.what()));
}

offload::TierCounts StageSetup::peak_bytes() const {
  const auto cpu_scratch = cpu_ != nullptr ? cpu_->peak_bytes() : 0;
  const auto& spill = stage_memory_->spill();
  return {.device = static_cast<std::int64_t>(device_->peak_bytes()),
          .cpu = static_cast<std::int64_t>(dram_->peak_bytes() + cpu_scratch),
          .disk = spill ? static_cast<std::int64_t>(spill->file.size_bytes()) : 0};
}

}  // namespace stagecoach::job
