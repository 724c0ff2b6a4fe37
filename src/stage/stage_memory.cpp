#include "stage/stage_memory.hpp"

namespace stagecoach::stage {
namespace {

std::size_t index_of(Area area) { return static_cast<std::size_t>(area); }

}  // namespace

StageMemory::StageMemory(const StagePlan& plan, device::Device& device, MemoryBudget& dram)
    : plan_(plan) {
  std::uint64_t disk_bytes = 0;
  for (const auto area : kAreas) {
    const auto bytes = bytes_of(area, plan);
    if (bytes == 0) {
      continue;
    }
    switch (tier_of(area)) {
      case offload::Tier::device:
        device_[index_of(area)] = device.allocate(bytes, name_of(area));
        break;
      case offload::Tier::cpu:
        dram_[index_of(area)] = BudgetedMemory(dram, bytes, name_of(area));
        break;
      case offload::Tier::disk:
        disk_bytes += bytes;
        break;
    }
  }
  if (disk_bytes > 0) {
    spill_ = offload::make_spill_file(plan.policy.offload_dir, disk_bytes);
  }
}

std::byte* StageMemory::at(Area area) const {
  return tier_of(area) == offload::Tier::device ? device_[index_of(area)].data()
                                                : dram_[index_of(area)].data();
}

std::span<std::byte> StageMemory::in_dram(Area area) const { return dram_[index_of(area)].bytes(); }

std::byte* StageMemory::page(Area area, std::int64_t number) const {
  return at(area) + static_cast<std::size_t>(number) * plan_.kv.page_bytes;
}

std::byte* StageMemory::hidden_device(std::int32_t ring, std::int64_t row) const {
  return at(Area::hidden_device) + hidden_bytes(plan_.shape, ring * plan_.hidden.device_rows + row);
}

std::byte* StageMemory::hidden_cpu(std::int32_t ring, std::int64_t row) const {
  return at(Area::hidden_cpu) + hidden_bytes(plan_.shape, ring * plan_.hidden.cpu_rows + row);
}

std::byte* StageMemory::hidden_work(std::int32_t turn) const {
  return at(Area::hidden_work) + static_cast<std::size_t>(turn) * plan_.hidden.batch_bytes;
}

std::byte* StageMemory::hidden_staging(std::int32_t turn) const {
  return at(Area::hidden_staging) + static_cast<std::size_t>(turn) * plan_.hidden.batch_bytes;
}

std::uint64_t StageMemory::hidden_offset(std::int32_t ring, std::int64_t batch) const {
  const auto first =
      static_cast<std::int64_t>(plan_.hidden.tiers.size()) - plan_.hidden.disk_batches;
  return bytes_of(Area::kv_disk, plan_) +
         static_cast<std::uint64_t>(ring * plan_.hidden.disk_batches + (batch - first)) *
             plan_.hidden.batch_bytes;
}

std::byte* StageMemory::weight_buffer(std::int32_t buffer) const {
  return at(Area::weight_buffers) + static_cast<std::size_t>(buffer) * plan_.weights.buffer_bytes;
}

std::byte* StageMemory::weight_staging(std::int32_t staging) const {
  return at(Area::weight_staging) + static_cast<std::size_t>(staging) * kWeightStagingBytes;
}

std::byte* StageMemory::wide_weights() const { return at(Area::wide_weights); }

float* StageMemory::workspace(std::int32_t turn) const {
  return reinterpret_cast<float*>(at(Area::workspace) +
                                  static_cast<std::size_t>(turn % plan_.workspaces) *
                                      workspace_bytes(plan_.shape));
}

std::byte* StageMemory::kv_device(std::int64_t layer, std::int64_t slot) const {
  return page(Area::kv_device, layer * plan_.kv.pools.device + slot);
}

std::byte* StageMemory::kv_cpu(std::int64_t layer, std::int64_t slot) const {
  return page(Area::kv_cpu, layer * plan_.kv.pools.cpu + slot);
}

std::byte* StageMemory::kv_open(std::int64_t layer, std::int64_t slot) const {
  return page(Area::kv_open, layer * plan_.kv.open_slots + slot);
}

std::uint64_t StageMemory::kv_offset(std::int64_t layer, std::int64_t slot) const {
  return static_cast<std::uint64_t>(layer * plan_.kv.pools.disk + slot) * plan_.kv.page_bytes;
}

std::byte* StageMemory::kv_staging(std::int32_t turn, std::int64_t number) const {
  return page(Area::kv_staging, turn * plan_.kv.staged + number);
}

std::byte* StageMemory::kv_cpu_staging(std::int32_t turn, std::int64_t number) const {
  return page(Area::kv_cpu_staging, turn * plan_.kv.cpu_staged + number);
}

std::byte* StageMemory::kv_passing(std::int32_t turn, std::int64_t number) const {
  return page(Area::kv_passing, turn * plan_.kv.passing + number);
}

float* StageMemory::rows_cpu(std::int32_t turn) const {
  return reinterpret_cast<float*>(at(Area::rows_cpu) +
                                  static_cast<std::size_t>(turn) * row_bytes_a_turn(plan_));
}

float* StageMemory::partials_cpu(std::int32_t turn, std::int64_t number) const {
  return reinterpret_cast<float*>(at(Area::partials_cpu) +
                                  static_cast<std::size_t>(turn) * partial_bytes_a_turn(plan_)) +
         number * plan_.kv.partial_floats;
}

float* StageMemory::partials_device(std::int32_t turn, std::int64_t number) const {
  return reinterpret_cast<float*>(at(Area::partials_device) +
                                  static_cast<std::size_t>(turn) * partial_bytes_a_turn(plan_)) +
         number * plan_.kv.partial_floats;
}

std::byte* StageMemory::of_split(Area area, std::size_t bytes, std::int32_t turn,
                                 std::int32_t split) const {
  return at(area) + static_cast<std::size_t>(turn * plan_.kv.splits + split) * bytes;
}

float* StageMemory::scores_cpu(std::int32_t turn, std::int32_t split) const {
  return reinterpret_cast<float*>(of_split(Area::scores_cpu, plan_.kv.score_bytes, turn, split));
}

float* StageMemory::scores_device(std::int32_t turn, std::int32_t split) const {
  return reinterpret_cast<float*>(of_split(Area::scores_device, plan_.kv.score_bytes, turn, split));
}

device::AttentionSelection* StageMemory::selection_cpu(std::int32_t turn,
                                                       std::int32_t split) const {
  return reinterpret_cast<device::AttentionSelection*>(
      of_split(Area::selections_cpu, selection_bytes(plan_), turn, split));
}

device::AttentionSelection* StageMemory::selection_device(std::int32_t turn,
                                                          std::int32_t split) const {
  return reinterpret_cast<device::AttentionSelection*>(
      of_split(Area::selections_device, selection_bytes(plan_), turn, split));
}

std::byte* StageMemory::values_cpu(std::int32_t turn, std::int32_t split) const {
  return of_split(Area::values_cpu, plan_.kv.value_bytes, turn, split);
}

std::byte* StageMemory::values_device(std::int32_t turn, std::int32_t split) const {
  return of_split(Area::values_device, plan_.kv.value_bytes, turn, split);
}

}  // namespace stagecoach::stage
