#include "plan/stage_replay.hpp"

#include <algorithm>
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

StepGroup make_group(const CostedVisit& visit, std::size_t first, std::size_t end) {
  StepGroup group{.resource = visit.steps[first].resource,
                  .first = static_cast<std::int32_t>(first),
                  .end = static_cast<std::int32_t>(end),
                  .waits = {},
                  .cost = visit.costs[first]};
  for (auto i = first; i < end; ++i) {
    for (const auto& id : visit.steps[i].waits) {
      const bool inside = id.visit == visit.number && id.index >= group.first;
      if (!inside && std::find(group.waits.begin(), group.waits.end(), id) == group.waits.end()) {
        group.waits.push_back(id);
      }
    }
    group.cost = i == first ? group.cost : group.cost + visit.costs[i];
  }
  return group;
}

void group_steps(CostedVisit& visit, const stage::StagePlan& plan) {
  for (std::size_t first = 0; first < visit.steps.size();) {
    auto end = first + 1;
    while (end < visit.steps.size() && run_as_one(plan, visit.steps[end - 1], visit.steps[end])) {
      ++end;
    }
    visit.groups.push_back(make_group(visit, first, end));
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
  for (const auto& group : flight.visit->groups) {
    const auto r = static_cast<std::size_t>(group.resource);
    queues_[r].push_back({visit.number, &group});
    use_.bytes[r] +=
        static_cast<double>(flight.visit->steps[static_cast<std::size_t>(group.first)].bytes);
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

std::optional<Resource> StageReplay::begin_next(double now) {
  for (std::size_t r = 0; r < queues_.size(); ++r) {
    if (running_[r].group != nullptr || queues_[r].empty()) {
      continue;
    }
    const auto& waits = queues_[r].front().group->waits;
    if (!std::all_of(waits.begin(), waits.end(), [&](const auto& id) { return has_ended(id); })) {
      continue;
    }
    const auto queued = queues_[r].front();
    queues_[r].pop_front();
    running_[r] = {find(queued.visit)->visit, queued.group, now};
    if (queued.group->resource == Resource::compute && use_.busy_seconds[r] == 0) {
      use_.first_compute_seconds = now;
    }
    return queued.group->resource;
  }
  return std::nullopt;
}

void StageReplay::begin_again(Resource resource, double now) {
  running_[static_cast<std::size_t>(resource)].began = now;
}

void StageReplay::end(Resource resource, double now) {
  const auto r = static_cast<std::size_t>(resource);
  const auto ended = std::exchange(running_[r], {});
  STAGECOACH_CHECK(ended.group != nullptr);
  auto* const flight = find(ended.visit->number);
  std::fill(flight->done.begin() + ended.group->first, flight->done.begin() + ended.group->end, 1);
  flight->left -= static_cast<std::size_t>(ended.group->end - ended.group->first);
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
  STAGECOACH_CHECK(running.group != nullptr);
  return running;
}

StageUse StageReplay::use() const {
  auto use = use_;
  use.peak_pages = source_->peak_pages();
  return use;
}

}  // namespace stagecoach::plan
