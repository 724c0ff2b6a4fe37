#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "plan/cost_model.hpp"
#include "plan/simulation.hpp"

namespace stagecoach::plan {

/// Neighbouring steps [first, end) of one resource that nothing else can come between: they run as
/// one.
struct StepGroup {
  stage::Resource resource{};
  std::int32_t first = 0;
  std::int32_t end = 0;
  std::vector<stage::StepId> waits;  ///< outside the group
  StepCost cost;
};

/// The steps of one visit and what each costs: the same for all stages that are alike.
struct CostedVisit {
  std::int64_t number = 0;
  std::vector<stage::Step> steps;
  std::vector<StepCost> costs;
  std::vector<StepGroup> groups;
};

/// Schedules the visits of stages that are alike: each visit once, kept until all of them have it.
class VisitSource {
 public:
  /// Both must outlive the source.
  VisitSource(const stage::StagePlan& plan, const NodeProfile& profile);

  void add_taker() { ++takers_; }
  /// The visits are asked for in their order by each taker.
  std::shared_ptr<const CostedVisit> take(const stage::Visit& visit);
  [[nodiscard]] const CostModel& costs() const noexcept { return costs_; }
  [[nodiscard]] std::int64_t peak_pages() const noexcept { return peak_pages_; }

 private:
  struct Kept {
    std::shared_ptr<const CostedVisit> visit;
    int left = 0;
  };

  CostModel costs_;
  stage::Scheduler scheduler_;
  int takers_ = 0;
  std::map<std::int64_t, Kept> kept_;
  std::int64_t peak_pages_ = 0;
};

/// One stage under the virtual clock: the queues of its resources and the ring of visits in flight,
/// as stage::Engine has them.
class StageReplay {
 public:
  /// What a resource is at.
  struct Running {
    std::shared_ptr<const CostedVisit> visit;
    const StepGroup* group = nullptr;
    double began = 0;

    [[nodiscard]] const stage::Step& first_step() const {
      return visit->steps[static_cast<std::size_t>(group->first)];
    }
  };

  explicit StageReplay(VisitSource& source) : source_(&source) { source.add_taker(); }

  /// Whether the ring has room for another visit.
  [[nodiscard]] bool can_issue() const;
  void issue(const stage::Visit& visit);

  /// Begins the next group of steps, of any resource, that can begin now, and says of which; none:
  /// all wait.
  [[nodiscard]] std::optional<stage::Resource> begin_next(double now);
  /// What `resource` runs has waited until now, and does its work from here on.
  void begin_again(stage::Resource resource, double now);
  /// What `resource` runs has ended.
  void end(stage::Resource resource, double now);
  /// Only while it runs something.
  [[nodiscard]] const Running& running(stage::Resource resource) const;

  [[nodiscard]] const CostModel& costs() const { return source_->costs(); }
  /// So far.
  [[nodiscard]] StageUse use() const;

 private:
  struct InFlight {
    std::shared_ptr<const CostedVisit> visit;
    std::vector<char> done;
    std::size_t left = 0;
  };
  struct Queued {
    std::int64_t visit = 0;
    const StepGroup* group = nullptr;
  };

  [[nodiscard]] InFlight* find(std::int64_t visit);
  [[nodiscard]] bool has_ended(const stage::StepId& id);

  VisitSource* source_;
  std::deque<InFlight> in_flight_;  ///< oldest first
  std::array<std::deque<Queued>, stage::kResources> queues_;
  std::array<Running, stage::kResources> running_;  ///< no visit: nothing
  StageUse use_;
};

}  // namespace stagecoach::plan
