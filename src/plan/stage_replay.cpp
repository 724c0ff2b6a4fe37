#include "plan/stage_replay.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace stagecoach::plan {

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
  for (const auto& step : flight.visit->steps) {
    queues_[static_cast<std::size_t>(step.resource)].push_back({step.id.visit, step.id.index});
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

bool StageReplay::may_begin(const stage::Step& step) {
  return std::all_of(step.waits.begin(), step.waits.end(),
                     [&](const auto& id) { return has_ended(id); });
}

std::optional<StageReplay::Ready> StageReplay::begin_next(double now) {
  for (std::size_t r = 0; r < queues_.size(); ++r) {
    if (running_[r] || queues_[r].empty()) {
      continue;
    }
    const auto queued = queues_[r].front();
    const auto* const flight = find(queued.visit);
    const auto index = static_cast<std::size_t>(queued.step);
    const auto& step = flight->visit->steps[index];
    if (!may_begin(step)) {
      continue;
    }
    queues_[r].pop_front();
    running_[r] = queued;
    began_[r] = now;
    if (step.resource == stage::Resource::compute && use_.busy_seconds[r] == 0) {
      use_.first_compute_seconds = now;
    }
    return Ready{&step, &flight->visit->costs[index]};
  }
  return std::nullopt;
}

void StageReplay::begin_again(stage::Resource resource, double now) {
  began_[static_cast<std::size_t>(resource)] = now;
}

void StageReplay::end(stage::Resource resource, double now) {
  const auto r = static_cast<std::size_t>(resource);
  STAGECOACH_CHECK(running_[r].has_value());
  auto* const flight = find(running_[r]->visit);
  flight->done[static_cast<std::size_t>(running_[r]->step)] = 1;
  --flight->left;
  running_[r].reset();
  use_.busy_seconds[r] += now - began_[r];
  if (resource == stage::Resource::compute) {
    use_.last_compute_seconds = now;
  }
  while (!in_flight_.empty() && in_flight_.front().left == 0) {
    in_flight_.pop_front();
  }
}

const stage::Step* StageReplay::running(stage::Resource resource) const {
  const auto& queued = running_[static_cast<std::size_t>(resource)];
  if (!queued) {
    return nullptr;
  }
  for (const auto& flight : in_flight_) {
    if (flight.visit->number == queued->visit) {
      return &flight.visit->steps[static_cast<std::size_t>(queued->step)];
    }
  }
  return nullptr;
}

double StageReplay::began(stage::Resource resource) const {
  return began_[static_cast<std::size_t>(resource)];
}

StageUse StageReplay::use() const {
  auto use = use_;
  use.peak_pages = source_->peak_pages();
  return use;
}

}  // namespace stagecoach::plan
