#include "plan/stage_replay.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.hpp"

namespace stagecoach::plan {
namespace {

using stage::Resource;
using stage::StepKind;

/// Whether no step of another resource can wait for `step` and not for `next`, nor hold up `next`:
/// where nothing moves, or what the two touch is the same.
bool run_as_one(const stage::StagePlan& plan, const stage::Step& step, const stage::Step& next) {
  if (step.resource != Resource::compute || next.resource != Resource::compute) {
    return false;
  }
  const bool resident =
      plan.weights.buffers == 0 && !plan.kv.offloaded() && !plan.hidden.work && plan.overlap;
  return (resident && plan.schedule != stage::ScheduleKind::flexgen) ||
         (step.kind == StepKind::attention_out && next.kind == StepKind::mlp &&
          step.gpu_batch == next.gpu_batch);
}

void group_steps(CostedVisit& visit, const stage::StagePlan& plan) {
  const auto count = visit.steps.size();
  visit.group_ends.assign(count, 0);
  visit.group_costs.assign(count, {});
  for (std::size_t first = 0; first < count;) {
    auto cost = visit.costs[first];
    auto end = first + 1;
    for (; end < count && run_as_one(plan, visit.steps[end - 1], visit.steps[end]); ++end) {
      cost = cost + visit.costs[end];
    }
    visit.group_ends[first] = static_cast<std::int32_t>(end);
    visit.group_costs[first] = cost;
    first = end;
  }
}

}  // namespace

VisitSource::VisitSource(const stage::StagePlan& plan, const NodeProfile& profile)
    : costs_(profile, plan), scheduler_(plan, stage::PageRefs::by_batch) {}

std::shared_ptr<const CostedVisit> VisitSource::take(const stage::Visit& visit) {
  auto& kept = kept_[visit.number];
  if (!kept.visit) {
    auto schedule = scheduler_.next(visit);
    peak_pages_ = std::max(peak_pages_, scheduler_.pages().live().total());
    const auto loads = loads_of(visit, schedule, scheduler_.plan());
    auto made = std::make_shared<CostedVisit>();
    made->number = visit.number;
    made->costs.reserve(schedule.steps.size());
    for (auto& step : schedule.steps) {
      const bool wire =
          step.resource == stage::Resource::send || step.resource == stage::Resource::receive;
      made->costs.push_back(wire ? StepCost{} : costs_.of(step, loads));
      step.reads = {};
      step.writes = {};
    }
    made->steps = std::move(schedule.steps);
    group_steps(*made, scheduler_.plan());
    kept = {std::move(made), takers_};
  }
  auto taken = kept.visit;
  if (--kept.left == 0) {
    kept_.erase(visit.number);
  }
  return taken;
}

bool StageReplay::can_issue() const {
  return in_flight_.size() < static_cast<std::size_t>(stage::kHiddenRing);
}

void StageReplay::issue(const stage::Visit& visit) {
  STAGECOACH_CHECK(can_issue());
  auto& flight = in_flight_.emplace_back();
  flight.visit = source_->take(visit);
  flight.left = flight.visit->steps.size();
  flight.done.assign(flight.left, 0);
  for (std::int32_t first = 0; first < static_cast<std::int32_t>(flight.left);
       first = flight.visit->group_end(first)) {
    const auto& step = flight.visit->steps[static_cast<std::size_t>(first)];
    queues_[static_cast<std::size_t>(step.resource)].push_back({step.id.visit, first});
    use_.bytes[static_cast<std::size_t>(step.resource)] += static_cast<double>(step.bytes);
  }
  ++use_.visits;
}

StageReplay::InFlight* StageReplay::find(std::int64_t visit) {
  for (auto& flight : in_flight_) {
    if (flight.visit->number == visit) {
      return &flight;
    }
  }
  return nullptr;
}

bool StageReplay::has_ended(const stage::StepId& id) {
  const auto* flight = find(id.visit);
  return flight == nullptr || flight->done[static_cast<std::size_t>(id.index)] != 0;
}

bool StageReplay::may_begin(const CostedVisit& visit, std::int32_t first) {
  const auto group = std::span(visit.steps)
                         .subspan(static_cast<std::size_t>(first),
                                  static_cast<std::size_t>(visit.group_end(first) - first));
  const auto ended = [&](const stage::StepId& id) {
    // Of the group itself, or before it.
    return (id.visit == visit.number && id.index >= first) || has_ended(id);
  };
  return std::all_of(group.begin(), group.end(), [&](const stage::Step& step) {
    return std::all_of(step.waits.begin(), step.waits.end(), ended);
  });
}

std::optional<StageReplay::Ready> StageReplay::begin_next(double now) {
  for (std::size_t r = 0; r < queues_.size(); ++r) {
    if (running_[r].visit || queues_[r].empty()) {
      continue;
    }
    const auto queued = queues_[r].front();
    const auto& visit = find(queued.visit)->visit;
    if (!may_begin(*visit, queued.first)) {
      continue;
    }
    queues_[r].pop_front();
    running_[r] = {visit, queued.first, visit->group_end(queued.first), now};
    const auto index = static_cast<std::size_t>(queued.first);
    if (visit->steps[index].resource == Resource::compute && use_.busy_seconds[r] == 0) {
      use_.first_compute_seconds = now;
    }
    return Ready{&visit->steps[index], &visit->group_costs[index]};
  }
  return std::nullopt;
}

void StageReplay::begin_again(Resource resource, double now) {
  running_[static_cast<std::size_t>(resource)].began = now;
}

void StageReplay::end(Resource resource, double now) {
  const auto r = static_cast<std::size_t>(resource);
  const auto ended = std::exchange(running_[r], {});
  STAGECOACH_CHECK(ended.visit != nullptr);
  auto* const flight = find(ended.visit->number);
  std::fill(flight->done.begin() + ended.first, flight->done.begin() + ended.end, 1);
  flight->left -= static_cast<std::size_t>(ended.end - ended.first);
  use_.busy_seconds[r] += now - ended.began;
  if (resource == Resource::compute) {
    use_.last_compute_seconds = now;
  }
  while (!in_flight_.empty() && in_flight_.front().left == 0) {
    in_flight_.pop_front();
  }
}

const StageReplay::Running& StageReplay::running(Resource resource) const {
  const auto& running = running_[static_cast<std::size_t>(resource)];
  STAGECOACH_CHECK(running.visit != nullptr);
  return running;
}

StageUse StageReplay::use() const {
  auto use = use_;
  use.peak_pages = source_->peak_pages();
  return use;
}

}  // namespace stagecoach::plan
