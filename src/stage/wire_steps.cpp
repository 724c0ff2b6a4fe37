#include <fmt/format.h>

#include <span>

#include "stage/step_context.hpp"

namespace stagecoach::stage::wire_steps {
namespace {

/// The visit's activations, where the wire brings and takes them.
std::span<std::byte> hidden_of(const StepContext& context, const Step& step,
                               const VisitState& visit) {
  const auto ring = visit.schedule.ring;
  return {context.plan.hidden.wire_in_cpu ? context.memory.hidden_cpu(ring, 0)
                                          : context.memory.hidden_device(ring, 0),
          static_cast<std::size_t>(step.bytes)};
}

}  // namespace

void receive_hidden(const StepContext& context, const Step& step, const VisitState& visit) {
  context.streams.of(Resource::receive)
      .enqueue([&transport = context.transport, target = hidden_of(context, step, visit),
                number = visit.visit->number] {
        transport.receive(target, transport.rank() - 1, comm::Channel::hidden,
                          fmt::format("visit {}'s hidden states", number));
      });
}

void send_plan(const StepContext& context, const Step& /*step*/, const VisitState& visit) {
  context.streams.of(Resource::send).enqueue([&transport = context.transport, visit = visit.visit] {
    transport.send_message(serialize(*visit), transport.rank() + 1, comm::Channel::plan,
                           fmt::format("visit {}'s plan", visit->number));
  });
}

void send_hidden(const StepContext& context, const Step& step, const VisitState& visit) {
  context.streams.of(Resource::send)
      .enqueue([&transport = context.transport, source = hidden_of(context, step, visit),
                number = visit.visit->number] {
        transport.send(source, transport.rank() + 1, comm::Channel::hidden,
                       fmt::format("visit {}'s hidden states", number));
      });
}

void send_tokens(const StepContext& context, const Step& /*step*/, const VisitState& visit) {
  context.streams.of(Resource::send)
      .enqueue([&transport = context.transport, visit = visit.visit, outcomes = visit.outcomes] {
        transport.send_message(serialize(outcomes->by_entry(visit->entries.size())), 0,
                               comm::Channel::tokens,
                               fmt::format("visit {}'s tokens", visit->number));
      });
}

}  // namespace stagecoach::stage::wire_steps
