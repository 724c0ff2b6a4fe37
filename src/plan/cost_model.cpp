#include "plan/cost_model.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "stage/decoder_layer.hpp"
#include "stage/visit_builder.hpp"

namespace stagecoach::plan {
namespace {

using stage::Area;
using stage::Step;
using stage::StepKind;

constexpr double kF16Bytes = 2;
constexpr double kF32Bytes = 4;
/// A copy within DRAM reads and writes.
constexpr double kCopyTraffic = 2;

const FormatRates& rates_of(const NodeProfile& profile, Packing packing) {
  const auto found = profile.formats.find(packing);
  if (found == profile.formats.end() || found->second.products.empty()) {
    throw ConfigError(
        fmt::format("the profile of {} says nothing about products with {} weights; measure it, or "
                    "add them to [products]",
                    profile.host, packing == Packing::none ? "f16" : to_string(packing)));
  }
  return found->second;
}

const char* name_of(device::KvType type) {
  switch (type) {
    case device::KvType::f16:
      return "f16";
    case device::KvType::f32:
      return "f32";
    case device::KvType::int8:
      return "int8";
    case device::KvType::int4:
      return "int4";
  }
  return "?";
}

const CacheRates& rates_of(const NodeProfile& profile, device::KvType type) {
  const auto found = profile.caches.find(type);
  if (found == profile.caches.end()) {
    throw ConfigError(fmt::format(
        "the profile of {} says nothing about a {} KV cache; measure it, or add it to [cache]",
        profile.host, name_of(type)));
  }
  return found->second;
}

/// Of the nearest widths measured, between them straight in the logarithm of the width.
double product_rate(const FormatRates& rates, std::int64_t rows, std::int64_t width) {
  const auto size = static_cast<double>(rows);
  const auto above = rates.products.lower_bound(width);
  if (above == rates.products.end()) {
    return rates.products.rbegin()->second.at(size);
  }
  if (above->first == width || above == rates.products.begin()) {
    return above->second.at(size);
  }
  const auto below = std::prev(above);
  const auto span = std::log(static_cast<double>(above->first) / static_cast<double>(below->first));
  const auto part = std::log(static_cast<double>(width) / static_cast<double>(below->first)) / span;
  return std::exp((1 - part) * std::log(below->second.at(size)) +
                  part * std::log(above->second.at(size)));
}

/// Bytes of one weight, its group's parameters included.
double weight_bytes(const model::WeightFormat& format) {
  if (!format.layers.packed()) {
    return kF16Bytes;
  }
  constexpr std::int64_t kColumns = 4096;
  return static_cast<double>(packed_row_bytes(format.layers, kColumns)) / kColumns;
}

}  // namespace

StepCost operator+(const StepCost& a, const StepCost& b) {
  StepCost sum{.seconds = a.seconds + b.seconds};
  if (sum.seconds > 0) {
    for (std::size_t i = 0; i < sum.draws.size(); ++i) {
      sum.draws[i] = (a.draws[i] * a.seconds + b.draws[i] * b.seconds) / sum.seconds;
    }
  }
  return sum;
}

std::vector<BatchLoad> loads_of(const stage::Visit& visit, const stage::VisitSchedule& schedule,
                                const stage::StagePlan& plan) {
  const auto page_tokens = static_cast<double>(plan.shape.batch.page_tokens);
  std::vector<BatchLoad> loads;
  for (std::size_t b = 0; b < schedule.batches.size(); ++b) {
    auto& load = loads.emplace_back();
    const auto& kv = schedule.kv[b];
    for (std::size_t i = 0; i < kv.sequences.size(); ++i) {
      const auto& entry =
          visit.entries[static_cast<std::size_t>(schedule.batches[b].first_entry) + i];
      const auto rows = static_cast<std::int64_t>(entry.tokens.size());
      const auto attended = rows * entry.first_position + rows * (rows + 1) / 2;
      if (rows > 1) {
        load.prompt_flops += stage::attention_flops(plan.shape.spec, attended);
        continue;
      }
      double on_cpu = 0;
      const auto& pages = kv.sequences[i].pages;
      for (std::size_t p = 0; p < pages.size(); ++p) {
        if (pages[p].partial >= 0) {
          on_cpu += std::min(page_tokens,
                             static_cast<double>(attended) - static_cast<double>(p) * page_tokens);
        }
      }
      load.cpu_tokens += on_cpu;
      load.device_tokens += static_cast<double>(attended) - on_cpu;
    }
  }
  return loads;
}

CostModel::CostModel(const NodeProfile& profile, const stage::StagePlan& plan)
    : profile_(profile),
      plan_(plan),
      dense_(rates_of(profile, Packing::none)),
      weights_(rates_of(profile, plan.shape.weights.layers.packing)),
      cache_(rates_of(profile, plan.shape.batch.kv_format.type)) {
  const bool uses_disk =
      plan.weights.on_disk() || plan.kv.pools.disk > 0 || plan.hidden.disk_batches > 0;
  if (uses_disk && (profile.disk.read.empty() || profile.disk.write.empty())) {
    throw ConfigError(
        fmt::format("the profile of {} has no disk, and the plan puts something there; measure it "
                    "with --folder",
                    profile.host));
  }
  const auto asked = plan.policy.pinned_mem_bytes;
  const auto areas = stage::areas_to_pin(
      plan, asked > 0 ? std::min(asked, profile.pinned_mem_bytes) : profile.pinned_mem_bytes);
  const auto pin = [&](Area area, std::initializer_list<StepKind> kinds) {
    if (std::find(areas.begin(), areas.end(), area) != areas.end()) {
      for (const auto kind : kinds) {
        pinned_[static_cast<std::size_t>(kind)] = true;
      }
    }
  };
  pin(Area::kv_cpu, {StepKind::load_kv});
  pin(Area::hidden_cpu, {StepKind::load_hidden, StepKind::store_hidden});
  pin(Area::rows_cpu, {StepKind::save_rows});
  pin(Area::partials_cpu, {StepKind::load_partials});
  pin(Area::scores_cpu, {StepKind::save_scores});
  pin(Area::weight_staging, {StepKind::stage_weights});
  pinned_[static_cast<std::size_t>(StepKind::load_weights)] = plan.weights.pinned;
}

StepCost CostModel::of(const Step& step, const std::vector<BatchLoad>& loads) const {
  const auto load =
      step.gpu_batch >= 0 ? loads[static_cast<std::size_t>(step.gpu_batch)] : BatchLoad{};
  switch (step.kind) {
    case StepKind::attention_in:
    case StepKind::attention_out:
    case StepKind::mlp:
    case StepKind::widen_weights:
      return products_of(step);
    case StepKind::embed:
      return on_device(profile_.step.compute + row_seconds(step.rows, plan_.shape.spec.hidden), 0);
    case StepKind::attention:
    case StepKind::score_kv:
      return attention(step, load);
    case StepKind::head:
      return head(step);
    case StepKind::attend_cpu:
      return attend_on_cpu(load);
    case StepKind::store_kv:
      return store(step);
    case StepKind::read_weights:
    case StepKind::read_kv:
    case StepKind::read_hidden:
    case StepKind::write_kv:
    case StepKind::write_hidden:
      return disk(step);
    default:
      return moved(step);
  }
}

double CostModel::wire_bytes(std::int64_t rows) const {
  return static_cast<double>(rows * plan_.shape.spec.hidden) * profile_.software.hidden_bytes;
}

std::array<double, kPools> CostModel::capacity() const {
  std::array<double, kPools> capacity{};
  const auto set = [&](Pool pool, double value) {
    capacity[static_cast<std::size_t>(pool)] = value;
  };
  set(Pool::cores, profile_.cores);
  set(Pool::memory, profile_.memory_bytes_per_second);
  set(Pool::bus, profile_.copies.both_ways);
  set(Pool::disk_read, 1);
  set(Pool::disk_write, 1);
  set(Pool::disk, 1);
  if (!profile_.disk.read.empty()) {
    const auto alone =
        profile_.disk.read.points().back().rate + profile_.disk.write.points().back().rate;
    set(Pool::disk, std::clamp(2 * profile_.disk.together / alone, 1.0, 2.0));
  }
  return capacity;
}

StepCost CostModel::on_device(double seconds, double memory_bytes) const {
  return profile_.gpu ? StepCost{.seconds = seconds} : on_cpu(seconds, memory_bytes);
}

StepCost CostModel::on_cpu(double seconds, double memory_bytes) const {
  StepCost cost{.seconds = seconds};
  cost.draw(Pool::cores) = profile_.threads;
  cost.draw(Pool::memory) = seconds > 0 ? memory_bytes / seconds : 0;
  return cost;
}

double CostModel::row_seconds(std::int64_t rows, std::int64_t width) const {
  return 2 * kF32Bytes * static_cast<double>(rows * width) / profile_.row_bytes_per_second;
}

double CostModel::kv_token_bytes() const {
  return 2 * static_cast<double>(plan_.kv.key_bytes) /
         static_cast<double>(plan_.shape.batch.page_tokens);
}

/// Of a runtime that widens whatever is packed before each use.
double CostModel::widened_again_seconds(Packing packing, double f16_bytes) const {
  const bool widens = profile_.software.widens_each_batch && packing != Packing::none;
  return widens ? f16_bytes / rates_of(profile_, packing).widen : 0;
}

/// Whether the step's products read weights that were widened before.
bool CostModel::widened(const Step& step) const {
  return plan_.weights.wide_bytes > 0 && step.rows > plan_.weights.packed_product_rows;
}

StepCost CostModel::product(double flops, std::int64_t rows, std::int64_t inputs,
                            Packing packing) const {
  const auto& rates = packing == Packing::none ? dense_ : weights_;
  const auto bytes_a_weight =
      packing == Packing::none ? kF16Bytes : weight_bytes(plan_.shape.weights);
  const auto weights = flops / (2 * static_cast<double>(std::max<std::int64_t>(rows, 1)));
  return on_device(flops / product_rate(rates, rows, inputs), weights * bytes_a_weight);
}

StepCost CostModel::products_of(const Step& step) const {
  const auto& spec = plan_.shape.spec;
  const auto fixed = on_device(profile_.step.compute, 0);
  const auto slot = on_device(profile_.software.slot_seconds, 0);
  if (step.kind == StepKind::widen_weights) {
    const auto bytes = static_cast<double>(plan_.weights.wide_bytes);
    return profile_.software.widens_each_batch ? StepCost{}
                                               : fixed + on_device(bytes / weights_.widen, bytes);
  }
  const auto stored = plan_.shape.weights.layers.packing;
  const bool wide = widened(step) || profile_.software.widens_each_batch;
  const auto packing = wide ? Packing::none : stored;
  const auto norm = on_device(row_seconds(step.rows, spec.hidden), 0);
  const auto again = [&](double flops) {
    const auto weights = flops / (2 * static_cast<double>(std::max<std::int64_t>(step.rows, 1)));
    return on_device(widened_again_seconds(stored, kF16Bytes * weights), 0);
  };
  if (step.kind == StepKind::attention_in) {
    return slot + fixed + norm + product(step.flops, step.rows, spec.hidden, packing) +
           again(step.flops);
  }
  if (step.kind == StepKind::attention_out) {
    return fixed + product(step.flops, step.rows, spec.heads * spec.head_dim, packing) +
           again(step.flops);
  }
  const auto half = step.flops / 2;
  return slot + fixed + norm + product(half, step.rows, spec.hidden, packing) +
         product(half, step.rows, spec.ffn, packing) + again(step.flops);
}

StepCost CostModel::attention(const Step& step, const BatchLoad& load) const {
  const auto& batch = plan_.shape.batch;
  auto bytes = load.device_tokens * kv_token_bytes();
  if (step.kind == StepKind::score_kv) {
    bytes /= 2;  // keys alone
  }
  auto seconds =
      profile_.step.compute + bytes / cache_.device.at(static_cast<double>(batch.page_tokens));
  auto moved = bytes;
  if (step.kind == StepKind::attention) {
    const auto new_bytes = static_cast<double>(step.rows) * kv_token_bytes();
    seconds += load.prompt_flops / profile_.prompt_attention_flops +
               new_bytes / profile_.row_bytes_per_second;
    const auto& spec = plan_.shape.spec;
    const auto tokens = load.device_tokens + static_cast<double>(step.rows);
    seconds += widened_again_seconds(
        batch.kv_format.pack().packing,
        tokens * kF16Bytes * 2 * static_cast<double>(spec.kv_heads * spec.head_dim));
    moved += new_bytes;
  }
  return on_device(seconds, moved);
}

StepCost CostModel::attend_on_cpu(const BatchLoad& load) const {
  const auto bytes = load.cpu_tokens * kv_token_bytes();
  const auto rate = cache_.cpu.at(static_cast<double>(plan_.shape.batch.page_tokens));
  return on_cpu(profile_.step.cpu + bytes / rate, bytes);
}

StepCost CostModel::store(const Step& step) const {
  // What goes straight into its pages has been copied there.
  const auto bytes = profile_.software.saves_query ? static_cast<double>(step.bytes) : 0;
  return on_cpu(profile_.step.cpu + bytes / cache_.store, kCopyTraffic * bytes);
}

StepCost CostModel::head(const Step& step) const {
  const auto& spec = plan_.shape.spec;
  const auto fixed = on_device(profile_.step.compute + row_seconds(step.rows, spec.hidden), 0);
  if (step.rows == 0) {
    return fixed;
  }
  const auto packing = plan_.shape.weights.tables().packing;
  const auto logits = static_cast<double>(step.rows * spec.vocab);
  return fixed + product(step.flops, step.rows, spec.hidden, packing) +
         on_device(logits / profile_.sampled_logits_per_second, 0);
}

StepCost CostModel::copy(double bytes, double rate, bool pinned) const {
  StepCost cost{.seconds = profile_.step.copy + bytes / rate};
  cost.draw(Pool::bus) = bytes / cost.seconds;
  cost.draw(Pool::memory) = (profile_.gpu ? 1 : kCopyTraffic) * bytes / cost.seconds;
  cost.draw(Pool::cores) = profile_.gpu && pinned ? 0 : 1;
  return cost;
}

/// Of a runtime whose cache in DRAM goes to the device in a way of its own. What comes from disk
/// has passed through pinned memory.
double CostModel::cache_copy_rate() const {
  const auto& pools = plan_.kv.pools;
  const auto from_disk =
      static_cast<double>(pools.disk) / static_cast<double>(pools.cpu + pools.disk);
  return 1 / (from_disk / profile_.copies.to_device_pinned +
              (1 - from_disk) / profile_.software.cache_bytes_per_second);
}

/// Copies, but for those of weights, hold activations or what is made from them.
StepCost CostModel::moved(const Step& step) const {
  const auto& software = profile_.software;
  auto bytes = static_cast<double>(step.bytes);
  if (step.kind == StepKind::load_hidden || step.kind == StepKind::store_hidden) {
    bytes *= software.hidden_bytes / kF32Bytes;
  } else if (step.kind == StepKind::save_rows && !software.saves_query) {
    const auto& spec = plan_.shape.spec;
    bytes = static_cast<double>(step.rows * 2 * spec.kv_heads * spec.head_dim) * kF16Bytes;
  } else if (step.kind == StepKind::load_partials && !software.page_results) {
    const auto& spec = plan_.shape.spec;
    bytes = static_cast<double>(step.rows * spec.heads * spec.head_dim) * software.hidden_bytes;
  }
  if (step.kind == StepKind::load_kv && software.cache_bytes_per_second > 0) {
    return copy(bytes, cache_copy_rate(), false);
  }
  const bool to_device = step.kind == StepKind::load_weights || step.kind == StepKind::load_kv ||
                         step.kind == StepKind::load_hidden ||
                         step.kind == StepKind::load_partials ||
                         step.kind == StepKind::stage_weights;
  const bool pinned = pinned_[static_cast<std::size_t>(step.kind)];
  const auto& rates = profile_.copies;
  return copy(bytes,
              to_device ? (pinned ? rates.to_device_pinned : rates.to_device_pageable)
                        : (pinned ? rates.from_device_pinned : rates.from_device_pageable),
              pinned);
}

StepCost CostModel::disk(const Step& step) const {
  const bool reads = step.resource == stage::Resource::disk_read;
  const bool pages = step.kind == StepKind::read_kv || step.kind == StepKind::write_kv;
  const auto bytes = static_cast<double>(step.bytes);
  const auto transfer = pages ? static_cast<double>(plan_.kv.page_bytes) : bytes;
  // The file's rates are a stage's share: a lone one gets what all of the node's have together.
  const auto rate = (reads ? profile_.disk.read : profile_.disk.write).at(std::max(transfer, 1.0)) *
                    profile_.stages;
  StepCost cost{.seconds = profile_.step.disk + bytes / rate};
  cost.draw(Pool::disk) = 1;
  cost.draw(reads ? Pool::disk_read : Pool::disk_write) = 1;
  cost.draw(Pool::memory) = bytes / cost.seconds;
  return cost;
}

}  // namespace stagecoach::plan
