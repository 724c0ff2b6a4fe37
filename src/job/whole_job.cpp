#include "job/whole_job.hpp"

#include <cstddef>
#include <type_traits>
#include <utility>

#include "base/bytes.hpp"
#include "comm/collectives.hpp"
#include "stage/partition.hpp"

namespace stagecoach::job {
namespace {

/// What a stage's plan has from its machine; all else follows from the job's configuration.
struct OfTheMachine {
  std::int64_t packed_product_rows = 0;
  std::int64_t weight_buffers = 0;
  bool direct = true;
  bool wire_on_device = false;
  bool pin_copied = false;
  bool weights_pinned = false;
};

OfTheMachine machine_of(const stage::StagePlan& plan) {
  return {.packed_product_rows = plan.weights.packed_product_rows,
          .weight_buffers = plan.weights.buffers,
          .direct = plan.direct,
          .wire_on_device = plan.wire_on_device,
          .pin_copied = plan.pin_copied,
          .weights_pinned = plan.weights.pinned};
}

/// The plan that stage `stage` made there. `mine`: that of any stage of the job.
stage::StagePlan plan_again(const JobConfig& config, const stage::StagePlan& mine, int stage,
                            const offload::StageContents& contents, const OfTheMachine& machine,
                            const WholeJob& whole) {
  auto shape = mine.shape;
  shape.contents = contents;
  auto plan =
      stage::make_plan(shape, config.policy(stage),
                       {.schedule = mine.schedule,
                        .overlap = mine.overlap,
                        .direct = machine.direct,
                        .wire_on_device = machine.wire_on_device,
                        .pin_copied = machine.pin_copied,
                        .packed_product_rows = machine.packed_product_rows},
                       whole.longest_pages, whole.kv_pages_per_layer, machine.weight_buffers);
  plan.weights.pinned = machine.weights_pinned;
  return plan;
}

}  // namespace

std::vector<RequestSize> sizes_of(const std::vector<Request>& requests) {
  std::vector<RequestSize> sizes;
  sizes.reserve(requests.size());
  for (const auto& request : requests) {
    sizes.push_back(
        {static_cast<std::int64_t>(request.prompt_tokens.size()), request.max_new_tokens});
  }
  return sizes;
}

void gather_stages(comm::Transport& transport, const JobConfig& config,
                   const stage::StagePlan& plan, const stage::EngineTotals& totals,
                   WholeJob& whole) {
  static_assert(std::is_trivially_copyable_v<stage::EngineTotals>);
  ByteWriter out;
  out.put(machine_of(plan));
  out.put(totals);
  const auto all = comm::all_gather(transport, std::move(out).take(), "what the stages did");
  if (transport.rank() != 0) {
    return;
  }
  const auto parts =
      stage::partition_layers(plan.shape.spec.layers, transport.size(), config.layers_per_stage);
  for (int stage = 0; stage < transport.size(); ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    ByteReader in(all[at]);
    const auto machine = in.get<OfTheMachine>();
    whole.plans.push_back(plan_again(config, plan, stage, parts[at], machine, whole));
    whole.totals.push_back(in.get<stage::EngineTotals>());
    in.expect_end();
  }
}

}  // namespace stagecoach::job
