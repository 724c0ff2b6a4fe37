#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/node_profile.hpp"
#include "stage/memory_areas.hpp"
#include "stage/schedule.hpp"
#include "stage/stage_plan.hpp"

namespace stagecoach::plan {

/// What steps that run at the same time share.
enum class Pool {
  cores,      ///< of the node
  memory,     ///< DRAM of the node, bytes a second
  disk_read,  ///< of the node's disk; 1: what reading alone gets
  disk_write,
  disk,  ///< both: what they get at once, in units of what each gets alone
  bus    ///< between DRAM and one stage's device, bytes a second
};
inline constexpr int kPools = 6;

/// What a step costs when nothing runs beside it, and what it draws from each pool meanwhile.
struct StepCost {
  double seconds = 0;
  std::array<double, kPools> draws{};

  [[nodiscard]] double& draw(Pool pool) { return draws[static_cast<std::size_t>(pool)]; }
  [[nodiscard]] double draw(Pool pool) const { return draws[static_cast<std::size_t>(pool)]; }
};

/// What a GPU batch asks of attention in one layer, which a step does not say.
struct BatchLoad {
  double device_tokens = 0;  ///< positions that sequences of one row attend to on the device
  double cpu_tokens = 0;     ///< likewise, on the CPU
  double prompt_flops = 0;   ///< of the sequences of more rows
};
/// Of each GPU batch of the visit.
std::vector<BatchLoad> loads_of(const stage::Visit& visit, const stage::VisitSchedule& schedule,
                                const stage::StagePlan& plan);

/// Seconds of the steps of one stage on one kind of node. Pure.
class CostModel {
 public:
  /// Both must outlive the model. ConfigError if the profile lacks what the plan uses: a packing, a
  /// type of cache, a disk.
  CostModel(const NodeProfile& profile, const stage::StagePlan& plan);

  /// Of any step but sends and receives.
  [[nodiscard]] StepCost of(const stage::Step& step, const std::vector<BatchLoad>& loads) const;
  /// Bytes that hidden states of `rows` tokens put on the wire.
  [[nodiscard]] double wire_bytes(std::int64_t rows) const;
  /// What there is of each pool.
  [[nodiscard]] std::array<double, kPools> capacity() const;

 private:
  [[nodiscard]] StepCost product(double flops, std::int64_t rows, std::int64_t inputs,
                                 Packing packing) const;
  [[nodiscard]] StepCost products_of(const stage::Step& step) const;
  [[nodiscard]] StepCost attention(const stage::Step& step, const BatchLoad& load) const;
  [[nodiscard]] StepCost attend_on_cpu(const BatchLoad& load) const;
  [[nodiscard]] StepCost head(const stage::Step& step) const;
  [[nodiscard]] StepCost copy(double bytes, double rate, bool pinned) const;
  [[nodiscard]] double cache_copy_rate() const;
  [[nodiscard]] StepCost store(const stage::Step& step) const;
  [[nodiscard]] StepCost disk(const stage::Step& step) const;
  [[nodiscard]] StepCost on_device(double seconds, double memory_bytes) const;
  [[nodiscard]] StepCost on_cpu(double seconds, double memory_bytes) const;
  [[nodiscard]] StepCost moved(const stage::Step& step) const;
  [[nodiscard]] double row_seconds(std::int64_t rows, std::int64_t width) const;
  [[nodiscard]] double kv_token_bytes() const;
  [[nodiscard]] double widened_again_seconds(Packing packing, double f16_bytes) const;
  [[nodiscard]] bool widened(const stage::Step& step) const;

  const NodeProfile& profile_;
  const stage::StagePlan& plan_;
  const FormatRates& dense_;
  const FormatRates& weights_;
  const CacheRates& cache_;
  std::array<bool, stage::kStepKinds> pinned_{};
};

/// One after the other: seconds add up, draws are averaged over them.
StepCost operator+(const StepCost& a, const StepCost& b);

}  // namespace stagecoach::plan
