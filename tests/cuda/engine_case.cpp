#include "cuda/engine_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "comm/loopback_transport.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/host/host_device.hpp"
#include "unit/stage/specs.hpp"

namespace stagecoach::test {
namespace {

constexpr std::int64_t kLayers = 3;
constexpr std::size_t kDeviceBytes = std::size_t{256} << 20;

stage::BatchShape batch_of(const EngineOptions& options) {
  stage::BatchShape batch{.gpu_batch_size = 2, .num_gpu_batches = 2, .prefill_piece = 21};
  if (options.schedule != stage::ScheduleKind::rolling) {
    batch.admission = stage::Admission::whole;
    batch.longest_prompt = 40;
  }
  if (options.compressed) {
    batch.kv_format = device::KvFormat(device::KvType::int4, 32);
  }
  batch.attention_sparsity = options.sparse ? 0.3 : 1;
  return batch;
}

model::WeightFormat format_of(const EngineOptions& options) {
  model::WeightFormat format;
  if (options.compressed) {
    format.layers = {Packing::int4, 32};
  }
  return format;
}

device::ScratchShape scratch_shape(const stage::StagePlan& plan) {
  const auto& spec = plan.shape.spec;
  const auto& batch = plan.shape.batch;
  return {.max_in_features = std::max(spec.hidden, spec.ffn),
          .head_dim = spec.head_dim,
          .page_tokens = batch.page_tokens,
          .vocab = spec.vocab,
          .sparse_tokens = batch.attention_sparsity < 1 ? spec.max_positions : 0,
          .heads = spec.heads,
          .kv_heads = spec.kv_heads,
          .max_rows = batch.max_batch_rows(),
          .max_sequences = batch.gpu_batch_size,
          .longest_pages = spec.max_positions / batch.page_tokens};
}

std::unique_ptr<offload::WeightSource> source_of(const stage::StageShape& shape) {
  auto source = offload::make_dummy_source(3);
  if (!shape.weights.packed()) {
    return source;
  }
  return offload::make_packing_source(std::move(source), shape.spec, shape.weights);
}

/// Every token another one, and everything scored.
void vary(std::vector<stage::Visit>& visits, std::int64_t vocab) {
  for (auto& visit : visits) {
    for (auto& entry : visit.entries) {
      entry.num_logprobs = 2;
      for (std::size_t i = 0; i < entry.tokens.size(); ++i) {
        const auto position = entry.first_position + static_cast<std::int32_t>(i);
        entry.tokens[i] =
            static_cast<std::int32_t>((position * 37 + entry.slot * 11 + 5) % (vocab - 4)) + 4;
      }
    }
  }
}

}  // namespace

EngineCase::EngineCase(const EngineOptions& options) {
  stage::Policy policy;
  policy.percent = options.percent;
  policy.cpu_attention = options.cpu_attention;
  policy.offload_dir = folder_.path();
  auto run = testing::run_virtual_pipeline(
      {.spec = testing::small_spec(kLayers),
       .stages = 1,
       .shape = batch_of(options),
       .page_capacity = 24,
       .policy = policy,
       .options = {.schedule = options.schedule, .direct = false, .packed_product_rows = 8},
       .weight_buffers = 2,
       .weights = format_of(options)},
      {3, 19, 1, 40, 5, 2, 38, 1, 1, 20}, {2, 9, 6, 7, 3, 1, 8, 4, 9, 2},
      {.work = [](const stage::Step&) { return 1.0; }});
  plan_ = run.stages.front().plan;
  visits_ = std::move(run.visits);
  vary(visits_, plan_.shape.spec.vocab);
}

std::vector<stage::Step> EngineCase::steps() const {
  stage::Scheduler scheduler(plan_);
  std::vector<stage::Step> steps;
  for (const auto& visit : visits_) {
    auto schedule = scheduler.next(visit);
    steps.insert(steps.end(), schedule.steps.begin(), schedule.steps.end());
  }
  return steps;
}

std::vector<std::vector<std::byte>> EngineCase::run(
    const Fault& fault, const std::function<void(const TappedDevice&)>& look) const {
  AbortSignal abort;
  try {
    return run(fault, abort, look);
  } catch (const JobAborted&) {
    if (const auto cause = abort.cause()) {
      std::rethrow_exception(cause);
    }
    throw;
  }
}

std::vector<std::vector<std::byte>> EngineCase::run(
    const Fault& fault, AbortSignal& abort,
    const std::function<void(const TappedDevice&)>& look) const {
  const auto& shape = plan_.shape;
  const auto cuda = device::make_cuda_device({.index = 0, .memory_bytes = kDeviceBytes}, abort);
  const auto cpu = device::make_host_device({}, abort);
  cuda->reserve_scratch(scratch_shape(plan_));
  cpu->reserve_scratch(scratch_shape(plan_));
  TappedDevice tapped(*cuda, fault);
  MemoryBudget dram("CPU memory", kDeviceBytes);
  const stage::StageMemory memory(plan_, *cuda, dram);
  const auto source = source_of(shape);
  const offload::StageWeights weights(shape.spec, shape.contents, shape.weights,
                                      plan_.weights.image, plan_.weights.cut, *source, *cuda, dram,
                                      1, nullptr);
  comm::LoopbackHub hub(1, {.timeout = std::chrono::seconds(60)}, abort);
  const auto transport = hub.transport(0);
  std::vector<std::vector<std::byte>> outcomes;
  stage::Engine engine({.plan = plan_,
                        .memory = memory,
                        .weights = weights,
                        .device = tapped,
                        .cpu = cpu.get(),
                        .transport = *transport,
                        .abort = abort,
                        .disk = {.backend = offload::DiskBackend::threads}});
  for (const auto& visit : visits_) {
    engine.issue(std::make_shared<const stage::Visit>(visit));
  }
  engine.finish();
  for (const auto& visit : visits_) {
    outcomes.push_back(transport->receive_message(0, comm::Channel::tokens,
                                                  fmt::format("visit {}'s tokens", visit.number)));
  }
  if (look) {
    look(tapped);
  }
  return outcomes;
}

}  // namespace stagecoach::test
