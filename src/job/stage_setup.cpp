#include "job/stage_setup.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/pinned_memory.hpp"
#include "base/system.hpp"
#include "base/units.hpp"
#include "device/cuda/cuda_devices.hpp"
#include "offload/spill_file.hpp"
#include "stage/partition.hpp"

namespace stagecoach::job {
namespace {

std::size_t or_else(std::size_t bytes, std::size_t otherwise) {
  return bytes > 0 ? bytes : otherwise;
}

/// OutOfMemory unless `whose` has so much free for each of the stages that share it.
void check_free(std::size_t bytes, std::size_t share, int stages, const char* flags,
                const std::string& whose, const char* remedy) {
  if (bytes > share) {
    throw OutOfMemory(
        fmt::format("{} {}: {} has {} free for each of its {} stages; lower it, or {}", flags,
                    format_bytes(bytes), whose, format_bytes(share), stages, remedy));
  }
}

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
      policy_(config.policy(transport.rank())),
      where_(find_device(config.device, transport)),
      device_(make_device(where_, config, threads, 0, abort)) {
  const auto parts =
      stage::partition_layers(model.spec.layers, transport.size(), config.layers_per_stage);
  shape_ = {.spec = model.spec,
            .contents = parts[static_cast<std::size_t>(transport.rank())],
            .batch = batch_of(config, transport.size()),
            .weights = model.format};
}

stage::Budgets StageSetup::find_budgets() const {
  stage::Budgets budgets;
  if (where_.cuda) {
    find_gpu_budgets(budgets);
  } else {
    find_host_budgets(budgets);
  }
  budgets.pinned = pinnable_bytes(budgets);
  if (!policy_.offload_dir.empty()) {
    budgets.disk_free = static_cast<std::size_t>(offload::free_disk_bytes(policy_.offload_dir)) /
                        static_cast<std::size_t>(ranks_on_this_host_);
    budgets.disk = or_else(policy_.disk_mem_bytes, stage::most_of(budgets.disk_free));
  }
  return budgets;
}

/// The host's device memory is the machine's DRAM: device and CPU budgets share it.
void StageSetup::find_host_budgets(stage::Budgets& budgets) const {
  const auto share = available_memory_bytes() / static_cast<std::size_t>(ranks_on_this_host_);
  const auto check = [&](std::size_t bytes, const char* flags) {
    check_free(bytes, share, ranks_on_this_host_, flags, "this machine",
               "use fewer stages a machine");
  };
  check(policy_.device_mem_bytes, "--device-mem");
  check(policy_.cpu_mem_bytes, "--cpu-mem");
  check(policy_.device_mem_bytes + policy_.cpu_mem_bytes, "--device-mem and --cpu-mem, together");
  const bool given = policy_.device_mem_bytes + policy_.cpu_mem_bytes > 0;
  budgets.together = given ? share : stage::most_of(share);
  budgets.device = or_else(policy_.device_mem_bytes, budgets.together);
  budgets.cpu = or_else(policy_.cpu_mem_bytes, budgets.together);
}

void StageSetup::find_gpu_budgets(stage::Budgets& budgets) const {
  const auto sharers = surroundings_.ranks_of_gpu;
  const auto on_gpu = device::cuda_free_memory(where_.index) / static_cast<std::size_t>(sharers);
  check_free(policy_.device_mem_bytes, on_gpu, sharers, "--device-mem",
             fmt::format("cuda:{}", where_.index), "use fewer stages a GPU");
  const auto in_dram = available_memory_bytes() / static_cast<std::size_t>(ranks_on_this_host_);
  check_free(policy_.cpu_mem_bytes, in_dram, ranks_on_this_host_, "--cpu-mem", "this machine",
             "use fewer stages a machine");
  budgets.device = or_else(policy_.device_mem_bytes, stage::most_of(on_gpu));
  budgets.cpu = or_else(policy_.cpu_mem_bytes, stage::most_of(in_dram));
}

/// The lock limit is the system's for what processes lock themselves; CUDA's driver has its own,
/// which shows when it refuses.
std::size_t StageSetup::pinnable_bytes(const stage::Budgets& budgets) const {
  const auto allowed = or_else(policy_.pinned_mem_bytes, budgets.cpu);
  if (!where_.cuda) {
    return std::min(allowed, lockable_bytes() / static_cast<std::size_t>(ranks_on_this_host_));
  }
  const auto taken = device_->host_scratch_bytes(scratch_shape());
  return allowed > taken ? allowed - taken : 0;
}

stage::ScratchBytes StageSetup::scratch_bytes() const {
  const auto shape = scratch_shape();
  const auto scratch = device_->scratch_bytes(shape);
  return {.device = scratch,
          .device_in_dram = device_->host_scratch_bytes(shape),
          .cpu = where_.cuda ? make_cpu_device(config_, threads_, 0, abort_)->scratch_bytes(shape)
                             : scratch,
          .loading = offload::StageWeights::staging_bytes(*model_.weights, stage::kReaderThreads)};
}

void StageSetup::plan(const stage::JobDemand& demand, const Surroundings& surroundings) {
  demand_ = demand;
  surroundings_ = surroundings;
  shape_.batch.longest_prompt = demand.longest_prompt;
  const stage::PlanOptions options{.schedule = config_.schedule,
                                   .overlap = config_.overlap,
                                   .direct = device_->host_addressable(),
                                   .wire_on_device = surroundings.wire_on_device,
                                   .pin_copied = where_.cuda,
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
  device_ =
      make_device(where_, config_, threads_, memory.total_bytes(offload::Tier::device), abort_);
  device_->reserve_scratch(scratch_shape());
  const auto scratch = scratch_bytes();
  auto dram_bytes = memory.total_bytes(offload::Tier::cpu) - scratch.device_in_dram;
  if (planned_.plan.kv.offloaded()) {
    cpu_ = make_cpu_device(config_, threads_, scratch.cpu, abort_);
    cpu_->reserve_scratch(scratch_shape());
    dram_bytes -= scratch.cpu;
  }
  dram_ = std::make_unique<MemoryBudget>("CPU memory", dram_bytes);
  stage_memory_ = std::make_unique<stage::StageMemory>(planned_.plan, *device_, *dram_);
  pin_areas();
  if (const auto& spill = stage_memory_->spill()) {
    notes_.insert(notes_.end(), spill->notes.begin(), spill->notes.end());
  }
}

void StageSetup::pin_areas() {
  for (const auto area : stage::areas_to_pin(planned_.plan, planned_.memory.budgets.pinned)) {
    const auto memory = stage_memory_->in_dram(area);
    if (auto pinned = device_->pin(memory)) {
      pinned_.push_back(std::move(pinned));
      pinned_bytes_ += memory.size();
    }
  }
}

void StageSetup::load_weights() {
  const auto& weights = planned_.plan.weights;
  weights_ = std::make_unique<offload::StageWeights>(
      shape_.spec, shape_.contents, shape_.weights, weights.image, weights.cut, *model_.weights,
      *device_, *dram_, stage::kReaderThreads, nullptr);
  pin_weights();
  note_what_is_not_pinned();
  const auto of_device = device_->notes();
  notes_.insert(notes_.end(), of_device.begin(), of_device.end());
  if (const auto* file = model_.weights->file(); weights.on_disk() && !file->direct()) {
    notes_.push_back(
        fmt::format("{}: its file system refuses direct reads: weights come through "
                    "the page cache",
                    file->path()));
  }
}

void StageSetup::pin_weights() {
  const auto dram = weights_->dram();
  std::unique_ptr<device::Pinned> pinned;
  if (planned_.plan.weights.pinned) {
    pinned = device_->pin(dram);
    if (pinned == nullptr && policy_.pin_weights == stage::Switch::on) {
      throw OutOfMemory(
          fmt::format("--pin-weights on: the system refuses to lock {}; raise "
                      "'ulimit -l' or use --pin-weights auto",
                      format_bytes(dram.size())));
    }
  }
  if (pinned != nullptr) {
    pinned_.push_back(std::move(pinned));
    pinned_bytes_ += dram.size();
  } else if (!where_.cuda && !dram.empty() && policy_.pin_weights == stage::Switch::automatic) {
    notes_.push_back(fmt::format("weights in DRAM are not pinned: {} of {} may be locked",
                                 format_bytes(planned_.memory.budgets.pinned),
                                 format_bytes(dram.size())));
  }
}

/// A GPU's copies from and to other memory pass through pinned buffers, which costs the CPU a copy.
void StageSetup::note_what_is_not_pinned() {
  if (!where_.cuda) {
    return;
  }
  auto copied_bytes = weights_->dram().size();
  for (const auto area : stage::kCopiedAreas) {
    copied_bytes += stage_memory_->in_dram(area).size();
  }
  if (copied_bytes > pinned_bytes_) {
    notes_.push_back(fmt::format(
        "{} of {} in DRAM that the GPU copies are not pinned: they pass through a pinned buffer; "
        "see --pinned-mem and --pin-weights",
        format_bytes(copied_bytes - pinned_bytes_), format_bytes(copied_bytes)));
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
  const auto cpu_scratch =
      (cpu_ != nullptr ? cpu_->peak_bytes() : 0) + device_->host_scratch_bytes(scratch_shape());
  const auto& spill = stage_memory_->spill();
  return {.device = static_cast<std::int64_t>(device_->peak_bytes()),
          .cpu = static_cast<std::int64_t>(dram_->peak_bytes() + cpu_scratch),
          .disk = spill ? static_cast<std::int64_t>(spill->file.size_bytes()) : 0};
}

}  // namespace stagecoach::job
