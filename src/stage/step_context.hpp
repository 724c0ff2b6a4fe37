#pragma once

#include "comm/transport.hpp"
#include "device/device.hpp"
#include "offload/stage_weights.hpp"
#include "stage/stage_memory.hpp"
#include "stage/stage_plan.hpp"
#include "stage/stage_streams.hpp"
#include "stage/visit_state.hpp"

namespace stagecoach::stage {

/// What carrying out a step needs. References only: the engine keeps what they name.
struct StepContext {
  const StagePlan& plan;
  const offload::StageWeights& weights;
  const StageMemory& memory;
  device::Device& device;
  device::Device* cpu;  ///< attends on the CPU; null: the plan has no such steps
  comm::Transport& transport;
  const StageStreams& streams;

  /// The activations of the step's GPU batch, where they are computed with.
  [[nodiscard]] std::byte* hidden(const Step& step, const VisitState& visit) const {
    const auto& batch = visit.batch(step);
    return plan.hidden.tiers[static_cast<std::size_t>(batch.number)] == offload::Tier::device
               ? memory.hidden_device(visit.schedule.ring, batch.first_row)
               : memory.hidden_work(step.work);
  }
  /// A page in DRAM that takes new tokens or is attended there.
  [[nodiscard]] std::byte* page_in_dram(const PagePlace& page, const Step& step) const {
    if (page.use.tier == offload::Tier::cpu) {
      return memory.kv_cpu(step.layer, page.use.slot);
    }
    if (page.passing >= 0) {
      return memory.kv_passing(step.turn, page.passing);
    }
    return page.use.open_slot >= 0 ? memory.kv_open(step.layer, page.use.open_slot)
                                   : memory.kv_cpu_staging(step.turn, page.cpu_staged);
  }
};

/// Steps of the compute queues: enqueue what they do and return. See StepKind.
namespace compute_steps {
void embed(const StepContext& context, const Step& step, const VisitState& visit);
void widen_weights(const StepContext& context, const Step& step, const VisitState& visit);
void attention_in(const StepContext& context, const Step& step, const VisitState& visit);
void store_kv(const StepContext& context, const Step& step, const VisitState& visit);
void score_kv(const StepContext& context, const Step& step, const VisitState& visit);
void attend_cpu(const StepContext& context, const Step& step, const VisitState& visit);
void attention(const StepContext& context, const Step& step, const VisitState& visit);
void attention_out(const StepContext& context, const Step& step, const VisitState& visit);
void mlp(const StepContext& context, const Step& step, const VisitState& visit);
void head(const StepContext& context, const Step& step, const VisitState& visit);
}  // namespace compute_steps

/// Steps that move data between tiers.
namespace transfer_steps {
void load_weights(const StepContext& context, const Step& step, const VisitState& visit);
void read_weights(const StepContext& context, const Step& step, const VisitState& visit);
void stage_weights(const StepContext& context, const Step& step, const VisitState& visit);
void load_hidden(const StepContext& context, const Step& step, const VisitState& visit);
void read_hidden(const StepContext& context, const Step& step, const VisitState& visit);
void store_hidden(const StepContext& context, const Step& step, const VisitState& visit);
void write_hidden(const StepContext& context, const Step& step, const VisitState& visit);
void read_kv(const StepContext& context, const Step& step, const VisitState& visit);
void load_kv(const StepContext& context, const Step& step, const VisitState& visit);
void write_kv(const StepContext& context, const Step& step, const VisitState& visit);
void save_rows(const StepContext& context, const Step& step, const VisitState& visit);
void save_scores(const StepContext& context, const Step& step, const VisitState& visit);
void load_partials(const StepContext& context, const Step& step, const VisitState& visit);
}  // namespace transfer_steps

/// Steps between stages.
namespace wire_steps {
void receive_hidden(const StepContext& context, const Step& step, const VisitState& visit);
void send_plan(const StepContext& context, const Step& step, const VisitState& visit);
void send_hidden(const StepContext& context, const Step& step, const VisitState& visit);
void send_tokens(const StepContext& context, const Step& step, const VisitState& visit);
}  // namespace wire_steps

}  // namespace stagecoach::stage
