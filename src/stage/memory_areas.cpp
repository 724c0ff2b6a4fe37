#include "stage/memory_areas.hpp"

#include <algorithm>

#include "base/aligned_memory.hpp"
#include "offload/stage_weights.hpp"
#include "stage/decoder_layer.hpp"

namespace stagecoach::stage {
namespace {

using offload::Tier;

struct Description {
  const char* name;
  Tier tier;
};

Description describe(Area area) {
  switch (area) {
    case Area::kv_device:
      return {"KV cache", Tier::device};
    case Area::kv_staging:
      return {"KV pages staged", Tier::device};
    case Area::partials_device:
      return {"attention results", Tier::device};
    case Area::scores_device:
      return {"attention scores", Tier::device};
    case Area::selections_device:
      return {"attention selections", Tier::device};
    case Area::values_device:
      return {"selected values", Tier::device};
    case Area::weight_buffers:
      return {"streamed weights", Tier::device};
    case Area::wide_weights:
      return {"widened weights", Tier::device};
    case Area::hidden_device:
      return {"hidden states", Tier::device};
    case Area::hidden_work:
      return {"hidden states at work", Tier::device};
    case Area::workspace:
      return {"workspace", Tier::device};
    case Area::kv_cpu:
      return {"KV cache", Tier::cpu};
    case Area::kv_open:
      return {"KV pages being filled", Tier::cpu};
    case Area::kv_passing:
      return {"KV pages on their way", Tier::cpu};
    case Area::kv_cpu_staging:
      return {"KV pages staged", Tier::cpu};
    case Area::partials_cpu:
      return {"attention results", Tier::cpu};
    case Area::scores_cpu:
      return {"attention scores", Tier::cpu};
    case Area::selections_cpu:
      return {"attention selections", Tier::cpu};
    case Area::values_cpu:
      return {"selected values", Tier::cpu};
    case Area::rows_cpu:
      return {"queries, keys, values", Tier::cpu};
    case Area::weight_staging:
      return {"weights staged", Tier::cpu};
    case Area::hidden_cpu:
      return {"hidden states", Tier::cpu};
    case Area::hidden_staging:
      return {"hidden states staged", Tier::cpu};
    case Area::kv_disk:
      return {"KV cache", Tier::disk};
    case Area::hidden_disk:
      return {"hidden states", Tier::disk};
  }
  return {"?", Tier::device};
}

std::size_t pages(const StagePlan& plan, std::int64_t count) {
  return static_cast<std::size_t>(count) * plan.kv.page_bytes;
}

/// So many bytes for each split sequence of a GPU batch, a turn.
std::size_t of_splits(const StagePlan& plan, std::size_t bytes) {
  return round_up(kTurns * static_cast<std::size_t>(plan.kv.splits) * bytes, kPageBytes);
}

}  // namespace

Tier tier_of(Area area) { return describe(area).tier; }
const char* name_of(Area area) { return describe(area).name; }

std::vector<Area> areas_to_pin(const StagePlan& plan, std::size_t budget_bytes) {
  std::vector<Area> areas;
  if (!plan.pin_copied) {
    return areas;
  }
  for (const auto area : kCopiedAreas) {
    if (area == Area::kv_cpu && plan.weights.pinned) {
      const auto weights = offload::StageWeights::cpu_bytes(plan.shape.contents, plan.weights.cut);
      budget_bytes -= std::min(budget_bytes, weights);
    }
    const auto bytes = bytes_of(area, plan);
    if (bytes > 0 && bytes <= budget_bytes) {
      areas.push_back(area);
      budget_bytes -= bytes;
    }
  }
  return areas;
}

std::size_t partial_bytes_a_turn(const StagePlan& plan) {
  return round_up(
      static_cast<std::size_t>(plan.kv.partials * plan.kv.partial_floats) * sizeof(float),
      kPageBytes);
}

std::size_t row_bytes_a_turn(const StagePlan& plan) {
  const auto floats = plan.shape.batch.max_batch_rows() * qkv_width(plan.shape.spec);
  return round_up(static_cast<std::size_t>(floats) * sizeof(float), kPageBytes);
}

std::size_t selection_bytes(const StagePlan& plan) {
  return sizeof(device::AttentionSelection) * static_cast<std::size_t>(plan.shape.spec.heads);
}

std::size_t bytes_of(Area area, const StagePlan& plan) {
  const auto layers = plan.shape.contents.layers;
  const auto& kv = plan.kv;
  const auto& hidden = plan.hidden;
  switch (area) {
    case Area::kv_device:
      return pages(plan, layers * kv.pools.device);
    case Area::kv_staging:
      return pages(plan, kTurns * kv.staged);
    case Area::partials_device:
    case Area::partials_cpu:
      return kTurns * partial_bytes_a_turn(plan);
    case Area::scores_device:
    case Area::scores_cpu:
      return of_splits(plan, kv.score_bytes);
    case Area::selections_device:
    case Area::selections_cpu:
      return of_splits(plan, selection_bytes(plan));
    case Area::values_device:
    case Area::values_cpu:
      return of_splits(plan, kv.value_bytes);
    case Area::wide_weights:
      return plan.weights.wide_bytes;
    case Area::weight_buffers:
      return static_cast<std::size_t>(plan.weights.buffers) * plan.weights.buffer_bytes;
    case Area::hidden_device:
      return round_up(kHiddenRing * hidden_bytes(plan.shape, hidden.device_rows), kPageBytes);
    case Area::hidden_work:
      return hidden.work ? kTurns * hidden.batch_bytes : 0;
    case Area::workspace:
      return static_cast<std::size_t>(plan.workspaces) * workspace_bytes(plan.shape);
    case Area::kv_cpu:
      return pages(plan, layers * kv.pools.cpu);
    case Area::kv_open:
      return pages(plan, layers * kv.open_slots);
    case Area::kv_passing:
      return pages(plan, kTurns * kv.passing);
    case Area::kv_cpu_staging:
      return pages(plan, kTurns * kv.cpu_staged);
    case Area::rows_cpu:
      return kv.offloaded() ? kTurns * row_bytes_a_turn(plan) : 0;
    case Area::weight_staging:
      return static_cast<std::size_t>(plan.weights.stagings) * kWeightStagingBytes;
    case Area::hidden_cpu:
      return round_up(kHiddenRing * hidden_bytes(plan.shape, hidden.cpu_rows), kPageBytes);
    case Area::hidden_staging:
      return hidden.disk_batches > 0 ? kTurns * hidden.batch_bytes : 0;
    case Area::kv_disk:
      return pages(plan, layers * kv.pools.disk);
    case Area::hidden_disk:
      return static_cast<std::size_t>(kHiddenRing * hidden.disk_batches) * hidden.batch_bytes;
  }
  return 0;
}

}  // namespace stagecoach::stage
