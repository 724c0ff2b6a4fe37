#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/memory_budget.hpp"
#include "device/device.hpp"
#include "offload/spill_file.hpp"
#include "stage/memory_areas.hpp"

namespace stagecoach::stage {

/// All areas of a plan, taken when constructed, and where everything lies in them. Layers, GPU
/// batches and rings are numbered as in the schedule.
class StageMemory {
 public:
  /// OutOfMemory and ConfigError as the device, the budget and make_spill_file throw them.
  StageMemory(const StagePlan& plan, device::Device& device, MemoryBudget& dram);

  [[nodiscard]] std::byte* hidden_device(std::int32_t ring, std::int64_t row) const;
  [[nodiscard]] std::byte* hidden_cpu(std::int32_t ring, std::int64_t row) const;
  [[nodiscard]] std::byte* hidden_work(std::int32_t turn) const;
  [[nodiscard]] std::byte* hidden_staging(std::int32_t turn) const;
  /// `batch` counts the block's GPU batches.
  [[nodiscard]] std::uint64_t hidden_offset(std::int32_t ring, std::int64_t batch) const;

  [[nodiscard]] std::byte* weight_buffer(std::int32_t buffer) const;
  [[nodiscard]] std::byte* weight_staging(std::int32_t staging) const;
  [[nodiscard]] std::byte* wide_weights() const;
  [[nodiscard]] float* workspace(std::int32_t turn) const;

  [[nodiscard]] std::byte* kv_device(std::int64_t layer, std::int64_t slot) const;
  [[nodiscard]] std::byte* kv_cpu(std::int64_t layer, std::int64_t slot) const;
  [[nodiscard]] std::byte* kv_open(std::int64_t layer, std::int64_t slot) const;
  [[nodiscard]] std::uint64_t kv_offset(std::int64_t layer, std::int64_t slot) const;
  [[nodiscard]] std::byte* kv_staging(std::int32_t turn, std::int64_t page) const;
  [[nodiscard]] std::byte* kv_cpu_staging(std::int32_t turn, std::int64_t page) const;
  [[nodiscard]] std::byte* kv_passing(std::int32_t turn, std::int64_t page) const;

  [[nodiscard]] float* rows_cpu(std::int32_t turn) const;
  [[nodiscard]] float* partials_cpu(std::int32_t turn, std::int64_t page) const;
  [[nodiscard]] float* partials_device(std::int32_t turn, std::int64_t page) const;

  /// Of a split sequence of a GPU batch.
  [[nodiscard]] float* scores_cpu(std::int32_t turn, std::int32_t split) const;
  [[nodiscard]] float* scores_device(std::int32_t turn, std::int32_t split) const;
  [[nodiscard]] device::AttentionSelection* selection_cpu(std::int32_t turn,
                                                          std::int32_t split) const;
  [[nodiscard]] device::AttentionSelection* selection_device(std::int32_t turn,
                                                             std::int32_t split) const;
  [[nodiscard]] std::byte* values_cpu(std::int32_t turn, std::int32_t split) const;
  [[nodiscard]] std::byte* values_device(std::int32_t turn, std::int32_t split) const;

  /// All of an area in DRAM.
  [[nodiscard]] std::span<std::byte> in_dram(Area area) const;

  /// Of cache and activations; none: nothing of them goes to disk.
  [[nodiscard]] const std::optional<offload::SpillFile>& spill() const noexcept { return spill_; }

 private:
  [[nodiscard]] std::byte* at(Area area) const;
  [[nodiscard]] std::byte* page(Area area, std::int64_t number) const;
  /// Item `split` of a turn, of `bytes` each.
  [[nodiscard]] std::byte* of_split(Area area, std::size_t bytes, std::int32_t turn,
                                    std::int32_t split) const;

  StagePlan plan_;
  std::array<device::Buffer, kAreas.size()> device_;
  std::array<BudgetedMemory, kAreas.size()> dram_;
  std::optional<offload::SpillFile> spill_;
};

}  // namespace stagecoach::stage
