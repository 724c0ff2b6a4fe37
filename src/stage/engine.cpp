#include "stage/engine.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace stagecoach::stage {
namespace {

constexpr std::array kAllResources = {Resource::receive,    Resource::disk_read,   Resource::h2d,
                                      Resource::compute,    Resource::cpu_compute, Resource::d2h,
                                      Resource::disk_write, Resource::send};

}  // namespace

Engine::Engine(const EngineParts& parts)
    : abort_(parts.abort),
      plan_(parts.plan),
      scheduler_(parts.plan),
      streams_(parts.device, parts.cpu,
               parts.plan.weights.on_disk() || parts.memory.spill().has_value(), parts.disk,
               parts.abort),
      context_{parts.plan, parts.weights,   parts.memory, parts.device,
               parts.cpu,  parts.transport, streams_} {}

Engine::~Engine() = default;

void Engine::issue(const std::shared_ptr<const Visit>& visit) {
  abort_.throw_if_raised();
  if (visit->last) {
    scheduler_.release(*visit);
    if (!plan_.shape.last()) {
      wire_steps::send_plan(context_, {}, {.visit = visit, .schedule = {}, .outcomes = {}});
    }
    return;
  }
  wait_for_ring_place();
  totals_.rows += visit->rows();
  auto& flight = in_ring_.emplace_back();
  flight.state.visit = visit;
  flight.state.schedule = scheduler_.next(*visit);
  if (plan_.shape.last()) {
    flight.state.outcomes = std::make_shared<Outcomes>();
  }
  for (const auto& step : flight.state.schedule.steps) {
    auto& stream = streams_.of(step.resource);
    for (const auto& wait : step.waits) {
      if (const auto found = events_.find(wait); found != events_.end()) {
        stream.wait(found->second);
      }
    }
    run_step(step, flight.state);
    events_.emplace_hint(events_.end(), step.id, stream.record());
    flight.last_of[static_cast<std::size_t>(step.resource)] = step.id;
    count(step);
  }
  flight.state.schedule.steps = {};  // many, and nothing needs them any more
}

void Engine::count(const Step& step) {
  totals_.bytes[static_cast<std::size_t>(step.resource)] += step.bytes;
  if (step.kind == StepKind::read_weights) {
    const auto& image = plan_.weights.image;
    const auto begin = std::max(step.range.begin, plan_.weights.cut.device_end);
    totals_.weight_bytes_read += step.bytes;
    totals_.weight_bytes_wanted += static_cast<std::int64_t>(
        image.tensor_bytes_before(step.range.end) - image.tensor_bytes_before(begin));
  }
}

void Engine::wait_for_ring_place() {
  if (in_ring_.size() < static_cast<std::size_t>(kHiddenRing)) {
    return;
  }
  const auto& oldest = in_ring_.front();
  for (const auto& id : oldest.last_of) {
    if (const auto found = events_.find(id); found != events_.end()) {
      found->second.wait();
    }
  }
  events_.erase(events_.begin(), events_.lower_bound({oldest.state.visit->number + 1, 0}));
  in_ring_.pop_front();
}

void Engine::run_step(const Step& step, const VisitState& visit) {
  using Run = void (*)(const StepContext&, const Step&, const VisitState&);
  const auto run = [&]() -> Run {
    switch (step.kind) {
      case StepKind::receive_hidden:
        return wire_steps::receive_hidden;
      case StepKind::load_weights:
        return transfer_steps::load_weights;
      case StepKind::read_weights:
        return transfer_steps::read_weights;
      case StepKind::stage_weights:
        return transfer_steps::stage_weights;
      case StepKind::load_hidden:
        return transfer_steps::load_hidden;
      case StepKind::read_hidden:
        return transfer_steps::read_hidden;
      case StepKind::read_kv:
        return transfer_steps::read_kv;
      case StepKind::load_kv:
        return transfer_steps::load_kv;
      case StepKind::widen_weights:
        return compute_steps::widen_weights;
      case StepKind::embed:
        return compute_steps::embed;
      case StepKind::attention_in:
        return compute_steps::attention_in;
      case StepKind::save_rows:
        return transfer_steps::save_rows;
      case StepKind::store_kv:
        return compute_steps::store_kv;
      case StepKind::write_kv:
        return transfer_steps::write_kv;
      case StepKind::score_kv:
        return compute_steps::score_kv;
      case StepKind::save_scores:
        return transfer_steps::save_scores;
      case StepKind::attend_cpu:
        return compute_steps::attend_cpu;
      case StepKind::load_partials:
        return transfer_steps::load_partials;
      case StepKind::attention:
        return compute_steps::attention;
      case StepKind::attention_out:
        return compute_steps::attention_out;
      case StepKind::mlp:
        return compute_steps::mlp;
      case StepKind::store_hidden:
        return transfer_steps::store_hidden;
      case StepKind::write_hidden:
        return transfer_steps::write_hidden;
      case StepKind::head:
        return compute_steps::head;
      case StepKind::send_plan:
        return wire_steps::send_plan;
      case StepKind::send_hidden:
        return wire_steps::send_hidden;
      case StepKind::send_tokens:
        return wire_steps::send_tokens;
    }
    throw InternalError("no such step");
  }();
  run(context_, step, visit);
}

void Engine::finish() {
  for (const auto resource : kAllResources) {
    if (streams_.has(resource)) {
      streams_.of(resource).record().wait();
    }
  }
  events_.clear();
  in_ring_.clear();
}

EngineTotals Engine::totals() const {
  auto totals = totals_;
  for (const auto resource : kAllResources) {
    if (streams_.has(resource)) {
      totals.busy_seconds[static_cast<std::size_t>(resource)] =
          streams_.of(resource).busy_seconds();
    }
  }
  if (streams_.has(Resource::disk_read)) {
    totals.disk_read = streams_.disk(Resource::disk_read).counters();
    totals.disk_write = streams_.disk(Resource::disk_write).counters();
  }
  return totals;
}

std::string Engine::disk_description() const {
  return streams_.has(Resource::disk_read) ? streams_.disk(Resource::disk_read).description() : "";
}

}  // namespace stagecoach::stage
