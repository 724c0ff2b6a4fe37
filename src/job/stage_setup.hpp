#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_budget.hpp"
#include "comm/transport.hpp"
#include "job/config.hpp"
#include "job/model_access.hpp"
#include "job/stage_device.hpp"
#include "offload/stage_weights.hpp"
#include "stage/engine.hpp"
#include "stage/memory_report.hpp"
#include "stage/setup_rules.hpp"
#include "stage/stage_memory.hpp"

namespace stagecoach::job {

/// What a stage must know of the others before it plans.
struct Surroundings {
  int ranks_of_gpu = 1;         ///< that use this one's GPU, itself included
  bool wire_on_device = false;  ///< hidden states come to and go from the GPU's memory
};

/// The devices, budgets, plan, memory and weights of one rank's stage, in the order in which a job
/// takes them. Each step throws what the user is to be told; none talks to other ranks.
class StageSetup {
 public:
  /// `model`, `transport` and `abort` must outlive the setup.
  StageSetup(const JobConfig& config, const ModelAccess& model, const comm::Transport& transport,
             int threads, AbortSignal& abort);

  /// Finds budgets and plan. Takes nothing yet.
  void plan(const stage::JobDemand& demand, const Surroundings& surroundings);
  /// After the stages have agreed on how many KV pages a layer they all have.
  void settle(std::int64_t kv_pages_per_layer);
  /// Takes all memory and disk space but the weights'.
  void take_memory();
  void load_weights();
  /// ConfigError if the machine refuses the disk backend that was asked for.
  [[nodiscard]] std::unique_ptr<stage::Engine> make_engine(comm::Transport& transport) const;

  [[nodiscard]] const device::Device& device() const { return *device_; }
  [[nodiscard]] const StageDevice& where() const { return where_; }
  /// Whether the policy leaves no activations in DRAM or on disk.
  [[nodiscard]] bool hidden_on_device() const {
    return stage::hidden_on_device(shape_.batch, policy_.percent);
  }
  [[nodiscard]] const stage::StageShape& shape() const { return shape_; }
  [[nodiscard]] const stage::StagePlan& stage_plan() const { return planned_.plan; }
  [[nodiscard]] const stage::MemoryReport& memory() const { return planned_.memory; }
  [[nodiscard]] const offload::StageWeights& weights() const { return *weights_; }
  /// What the machine refused and how the job does without, one line each.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  /// Bytes that were taken of each tier at once, at most.
  [[nodiscard]] offload::TierCounts peak_bytes() const;

 private:
  [[nodiscard]] device::ScratchShape scratch_shape() const {
    return stage::scratch_shape(shape_, demand_.kv.longest_pages);
  }
  [[nodiscard]] stage::Budgets find_budgets() const;
  void find_host_budgets(stage::Budgets& budgets) const;
  void find_gpu_budgets(stage::Budgets& budgets) const;
  [[nodiscard]] std::size_t pinnable_bytes(const stage::Budgets& budgets) const;
  [[nodiscard]] stage::ScratchBytes scratch_bytes() const;
  void pin_areas();
  void pin_weights();
  void note_what_is_not_pinned();

  const JobConfig config_;
  const ModelAccess& model_;
  AbortSignal& abort_;
  int threads_;
  int ranks_on_this_host_;
  stage::Policy policy_;
  StageDevice where_;
  Surroundings surroundings_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Device> cpu_;  ///< stores and attends in DRAM
  stage::StageShape shape_;
  stage::JobDemand demand_;
  stage::PlannedStage planned_;
  std::unique_ptr<MemoryBudget> dram_;
  std::unique_ptr<stage::StageMemory> stage_memory_;
  std::unique_ptr<offload::StageWeights> weights_;
  std::vector<std::unique_ptr<device::Pinned>> pinned_;
  std::size_t pinned_bytes_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace stagecoach::job
