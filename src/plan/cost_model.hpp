#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/node_profile.hpp"
#include "stage/schedule.hpp"
#include "stage/stage_plan.hpp"

namespace stagecoach::plan {

/// What steps that run at the same time share.
enum class Pool {
  cores,   ///< of the node
  memory,  ///< DRAM, bytes a second, of the node
  disk,    ///< the node's disk; 1: all of it
  bus      ///< between DRAM and one stage's device; 1: all of it
};
inline constexpr int kPools = 4;

/// What a step costs when nothing runs beside it, and what it draws from each pool meanwhile.
struct StepCost {
  double seconds = 0;
  std::array<double, kPools> draws{};

  [[nodiscard]] double& draw(Pool pool) { return draws[static_cast<std::size_t>(pool)]; }
};

/// What the GPU batches of a visit ask of attention, which a step does not say.
struct BatchLoad {
  std::int64_t sequences = 0;
  std::int64_t device_tokens = 0;  ///< attended to by sequences of one row, by the device
  std::int64_t cpu_tokens = 0;     ///< likewise, by the CPU
  double prompt_flops = 0;         ///< of attention of the others, in one layer
  std::int64_t rows = 0;
};
std::vector<BatchLoad> loads_of(const stage::Visit& visit, const stage::VisitSchedule& schedule,
                                const stage::StagePlan& plan);

/// Seconds of the steps of one stage on one kind of node. Pure.
class CostModel {
 public:
  /// `profile` must outlive the model. ConfigError if it lacks a format that the plan uses.
  CostModel(const NodeProfile& profile, const stage::StagePlan& plan);

  /// Of any step but sends and receives.
  [[nodiscard]] StepCost of(const stage::Step& step, const std::vector<BatchLoad>& loads) const;
  /// Bytes that a send of hidden states puts on the wire.
  [[nodiscard]] double wire_bytes(const stage::Step& step) const;
  /// What of each pool there is.
  [[nodiscard]] std::array<double, kPools> capacity() const;

 private:
  [[nodiscard]] StepCost product(double flops, std::int64_t rows, std::int64_t inputs,
                                 Packing packing) const;
  [[nodiscard]] StepCost compute(const stage::Step& step, const BatchLoad& load) const;
  [[nodiscard]] StepCost copy(double bytes, bool to_device, bool pinned) const;
  [[nodiscard]] bool pinned(stage::StepKind kind) const;

  const NodeProfile& profile_;
  const stage::StagePlan& plan_;
};

}  // namespace stagecoach::plan
