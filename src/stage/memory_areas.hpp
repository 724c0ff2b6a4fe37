#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "offload/tier.hpp"
#include "stage/stage_plan.hpp"

namespace stagecoach::stage {

/// The buffers that a stage computes with, beside its weights. Each is taken once, whole.
enum class Area {
  kv_device,        ///< pages of each layer
  kv_staging,       ///< pages of one GPU batch in one layer, a turn
  partials_device,  ///< of one GPU batch, a turn
  scores_device,    ///< likewise
  selections_device,
  values_device,
  weight_buffers,
  wide_weights,   ///< of one unit
  hidden_device,  ///< the ring
  hidden_work,    ///< of one GPU batch, a turn
  workspace,
  kv_cpu,          ///< pages of each layer
  kv_open,         ///< likewise
  kv_passing,      ///< pages of one GPU batch in one layer, a turn
  kv_cpu_staging,  ///< likewise
  partials_cpu,
  scores_cpu,
  selections_cpu,
  values_cpu,
  rows_cpu,  ///< query, key and value of one GPU batch, a turn
  weight_staging,
  hidden_cpu,      ///< the ring
  hidden_staging,  ///< of one GPU batch, a turn
  kv_disk,         ///< pages of each layer
  hidden_disk      ///< the ring
};
inline constexpr std::array kAreas = {
    Area::kv_device,         Area::kv_staging,     Area::partials_device, Area::scores_device,
    Area::selections_device, Area::values_device,  Area::weight_buffers,  Area::wide_weights,
    Area::hidden_device,     Area::hidden_work,    Area::workspace,       Area::kv_cpu,
    Area::kv_open,           Area::kv_passing,     Area::kv_cpu_staging,  Area::partials_cpu,
    Area::scores_cpu,        Area::selections_cpu, Area::values_cpu,      Area::rows_cpu,
    Area::weight_staging,    Area::hidden_cpu,     Area::hidden_staging,  Area::kv_disk,
    Area::hidden_disk};

offload::Tier tier_of(Area area);
/// For people: "KV pages being filled".
const char* name_of(Area area);
/// All of the area; 0: the plan does without it.
std::size_t bytes_of(Area area, const StagePlan& plan);

/// Areas in DRAM that copies to or from the device use, the smaller and busier ones first. Pinned
/// weights come before the cache: a visit copies each of their bytes, but of the cache its block's
/// alone, and hardly any where the CPU attends.
inline constexpr std::array kCopiedAreas = {
    Area::weight_staging, Area::hidden_cpu,     Area::hidden_staging, Area::kv_open,
    Area::kv_passing,     Area::kv_cpu_staging, Area::rows_cpu,       Area::partials_cpu,
    Area::scores_cpu,     Area::selections_cpu, Area::values_cpu,     Area::kv_cpu};

/// Those of the plan's that are pinned with so many bytes: each that fits beside the ones before,
/// and the cache beside the weights, if these are pinned.
std::vector<Area> areas_to_pin(const StagePlan& plan, std::size_t budget_bytes);

/// Bytes of one turn's partial results, and of one turn's rows in DRAM.
std::size_t partial_bytes_a_turn(const StagePlan& plan);
std::size_t row_bytes_a_turn(const StagePlan& plan);
/// Bytes of one sequence's selections.
std::size_t selection_bytes(const StagePlan& plan);

}  // namespace stagecoach::stage
