#include "stage/stage_plan.hpp"

#include <algorithm>

#include "base/aligned_memory.hpp"
#include "device/device.hpp"
#include "offload/stage_weights.hpp"
#include "stage/decoder_layer.hpp"

namespace stagecoach::stage {
namespace {

using offload::ByteRange;

constexpr std::size_t kCacheLineBytes = 64;

ByteRange intersection(ByteRange a, ByteRange b) {
  return {std::max(a.begin, b.begin), std::max(std::max(a.begin, b.begin), std::min(a.end, b.end))};
}

WeightPlan plan_weights(const StageShape& shape, const Policy& policy, const PlanOptions& options,
                        std::int64_t buffers) {
  WeightPlan plan;
  plan.image = offload::LayerImage(model::layer_tensors(shape.spec, shape.weights));
  plan.cut = offload::cut_by_shares(plan.image, policy.percent.weights());
  const auto end = plan.image.size_bytes();
  if (options.schedule == ScheduleKind::flexgen) {
    const auto middle = plan.image.part("mlp_norm.weight").offset_bytes;
    plan.units = {{0, middle}, {middle, end}};
  } else {
    plan.units = {{0, end}};
  }
  for (std::size_t unit = 0; unit < plan.units.size(); ++unit) {
    plan.buffer_bytes = std::max(plan.buffer_bytes, plan.streamed(unit).size());
  }
  plan.buffers = plan.buffer_bytes > 0 ? buffers : 0;
  plan.stagings = plan.on_disk() && !options.direct ? kWeightStagings : 0;
  plan.packed_product_rows = policy.widen_weights == Switch::on ? 0
                             : policy.widen_weights == Switch::off
                                 ? std::numeric_limits<std::int64_t>::max()
                                 : options.packed_product_rows;
  if (shape.weights.packed() && shape.batch.max_batch_rows() > plan.packed_product_rows) {
    for (const auto& unit : plan.units) {
      plan.wide_bytes =
          std::max(plan.wide_bytes, offload::StageWeights::wide_bytes(plan.image, unit));
    }
  }
  return plan;
}

/// On by itself where the cache is in DRAM, or passes through it.
bool uses_cpu_attention(const Policy& policy, const offload::TierCounts& pools, bool direct) {
  if (pools.cpu + pools.disk == 0 || policy.cpu_attention == Switch::off) {
    return false;
  }
  return policy.cpu_attention == Switch::on || pools.cpu > 0 || !direct;
}

std::size_t key_bytes(const StageShape& shape) {
  return static_cast<std::size_t>(
      shape.spec.kv_heads *
      device::kv_head_bytes(shape.batch.kv_format, shape.batch.page_tokens, shape.spec.head_dim));
}

void plan_splits(KvPlan& kv, const StagePlan& plan, std::int64_t longest_pages) {
  const auto& spec = plan.shape.spec;
  const auto& batch = plan.shape.batch;
  if (batch.attention_sparsity >= 1 || !kv.offloaded()) {
    return;
  }
  const auto tokens = longest_pages * batch.page_tokens;
  kv.splits = batch.gpu_batch_size;
  kv.score_bytes = sizeof(float) * static_cast<std::size_t>(spec.heads * tokens);
  if (!plan.cpu_attention) {
    kv.value_bytes = static_cast<std::size_t>(selected_value_bytes(plan.shape, tokens - 1));
  }
}

KvPlan plan_kv(const StagePlan& plan, std::int64_t longest_pages, std::int64_t kv_pages) {
  const auto& shape = plan.shape;
  const auto& batch = shape.batch;
  KvPlan kv;
  kv.pools = offload::split_by_shares(kv_pages, plan.policy.percent.cache());
  kv.page_bytes = kv_page_bytes(shape, kv.pools.disk > 0);
  kv.key_bytes = key_bytes(shape);
  const auto of_a_batch = batch.gpu_batch_size * longest_pages;
  const auto outside = kv.pools.cpu + kv.pools.disk;
  kv.staged = std::min(of_a_batch, outside);
  if (kv.pools.disk > 0) {
    kv.open_slots =
        std::min(offload::KvPages::open_slots_for(batch.places(), batch.block()), kv.pools.disk);
    kv.passing = std::min(batch.max_batch_rows() / batch.page_tokens, kv.pools.disk);
    kv.cpu_staged = plan.cpu_attention || !plan.direct ? std::min(of_a_batch, kv.pools.disk) : 0;
  }
  kv.partial_floats = device::attention_partial_floats(1, shape.spec.heads, shape.spec.head_dim);
  kv.partials = plan.cpu_attention ? std::min(of_a_batch, outside) : 0;
  plan_splits(kv, plan, longest_pages);
  return kv;
}

HiddenPlan plan_hidden(const StagePlan& plan) {
  const auto& shape = plan.shape;
  const auto& batch = shape.batch;
  const auto counts = offload::split_by_shares(batch.num_gpu_batches, plan.policy.percent.hidden());
  HiddenPlan hidden;
  for (const auto tier : offload::kTiers) {
    hidden.tiers.insert(hidden.tiers.end(), static_cast<std::size_t>(counts.of(tier)), tier);
  }
  hidden.work = counts.cpu + counts.disk > 0;
  const bool wired = !shape.first() || !shape.last();
  hidden.wire_in_cpu = wired && (hidden.work || !(plan.direct || plan.wire_on_device));
  const auto rows_of = [&](std::int64_t batches) {
    return std::min(batch.max_visit_rows(), batches * batch.max_batch_rows());
  };
  hidden.device_rows = rows_of(counts.device);
  hidden.cpu_rows = hidden.wire_in_cpu ? batch.max_visit_rows()
                    : counts.cpu > 0   ? rows_of(counts.device + counts.cpu)
                                       : 0;
  hidden.disk_batches = counts.disk;
  hidden.batch_bytes = round_up(hidden_bytes(shape, batch.max_batch_rows()), kPageBytes);
  return hidden;
}

}  // namespace

ByteRange WeightPlan::streamed(std::size_t unit) const {
  const auto whole = units.at(unit);
  if (cut.device_end >= whole.end) {
    return {whole.end, whole.end};
  }
  return intersection(whole, {cut.stream_begin, image.size_bytes()});
}

ByteRange WeightPlan::from_cpu(std::size_t unit) const {
  return intersection(streamed(unit), {cut.stream_begin, cut.cpu_end});
}

ByteRange WeightPlan::from_disk(std::size_t unit) const {
  return intersection(streamed(unit), {cut.cpu_end, image.size_bytes()});
}

StagePlan make_plan(const StageShape& shape, const Policy& policy, const PlanOptions& options,
                    std::int64_t longest_pages, std::int64_t kv_pages,
                    std::int64_t weight_buffers) {
  StagePlan plan;
  plan.shape = shape;
  plan.policy = policy;
  plan.schedule = options.schedule;
  plan.overlap = options.overlap;
  plan.direct = options.direct;
  plan.wire_on_device = options.wire_on_device;
  plan.pin_copied = options.pin_copied;
  plan.weights = plan_weights(shape, policy, options, weight_buffers);
  plan.cpu_attention = uses_cpu_attention(
      policy, offload::split_by_shares(kv_pages, policy.percent.cache()), options.direct);
  plan.kv = plan_kv(plan, longest_pages, kv_pages);
  plan.hidden = plan_hidden(plan);
  plan.workspaces = plan.kv.offloaded() ? kTurns : 1;
  return plan;
}

std::size_t kv_page_bytes(const StageShape& shape, bool on_disk) {
  return round_up(2 * key_bytes(shape), on_disk ? kPageBytes : kCacheLineBytes);
}

std::int64_t selected_value_bytes(const StageShape& shape, std::int64_t earlier) {
  const auto& spec = shape.spec;
  const auto records =
      device::value_records(shape.batch.attention_sparsity, earlier, spec.heads / spec.kv_heads);
  return spec.kv_heads * records * device::value_record_bytes(shape.batch.kv_format, spec.head_dim);
}

std::int64_t head_chunk_rows(const StageShape& shape) {
  return std::min<std::int64_t>(shape.batch.max_batch_rows(), 64);
}

std::size_t workspace_bytes(const StageShape& shape) {
  const auto layer = LayerWorkspace::size_floats(shape.spec, shape.batch.max_batch_rows());
  const auto head = head_chunk_rows(shape) * (2 * shape.spec.hidden + shape.spec.vocab);
  return round_up(
      sizeof(float) * static_cast<std::size_t>(shape.last() ? std::max(layer, head) : layer),
      kPageBytes);
}

std::size_t hidden_bytes(const StageShape& shape, std::int64_t rows) {
  return sizeof(float) * static_cast<std::size_t>(rows * shape.spec.hidden);
}

}  // namespace stagecoach::stage
