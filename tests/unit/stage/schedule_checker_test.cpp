#include "stage/schedule_checker.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "unit/stage/specs.hpp"
#include "unit/stage/virtual_pipeline.hpp"

namespace stagecoach::stage {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Case {
  Percent percent{};
  ScheduleKind schedule = ScheduleKind::rolling;
  int stages = 1;
  bool direct = true;
  Switch cpu_attention = Switch::automatic;
  std::int64_t weight_buffers = 2;
  std::int64_t layers = 4;
  bool compressed = false;  ///< packed weights, widened, and sparse attention
};

std::string name(const Case& c) {
  return fmt::format("{} {} stages {} direct {} attention {} buffers {}{}",
                     format_percent(c.percent), to_string(c.schedule), c.stages, c.direct,
                     static_cast<int>(c.cpu_attention), c.weight_buffers,
                     c.compressed ? ", compressed" : "");
}

/// All steps of each stage over a job of mixed lengths with early refills.
std::vector<std::vector<Step>> steps_of(const Case& c) {
  BatchShape shape{.gpu_batch_size = 2,
                   .num_gpu_batches = 2,
                   .inner_iterations = default_inner_iterations(c.stages),
                   .prefill_piece = 21};
  if (c.schedule != ScheduleKind::rolling) {
    shape.admission = Admission::whole;
    shape.longest_prompt = 40;
  }
  model::WeightFormat weights;
  if (c.compressed) {
    shape.kv_format = device::KvType::int4;
    shape.attention_sparsity = 0.2;
    weights.layers.packing = Packing::int4;
  }
  Policy policy;
  policy.widen_weights = Switch::on;
  policy.percent = c.percent;
  policy.cpu_attention = c.cpu_attention;
  const auto run = testing::run_virtual_pipeline(
      {.spec = testing::small_spec(c.layers),
       .stages = c.stages,
       .shape = shape,
       .page_capacity = 24,
       .policy = policy,
       .options = {c.schedule, true, c.direct},
       .weight_buffers = c.weight_buffers,
       .weights = weights},
      {3, 19, 1, 40, 5, 2, 38, 1, 1, 20}, {2, 18, 6, 13, 3, 1, 14, 4, 19, 2},
      {.work = [](const Step&) { return 1.0; }, .wire = 0.5, .token_return = 0.5});
  std::vector<std::vector<Step>> steps;
  for (const auto& stage : run.stages) {
    steps.push_back(stage.steps);
  }
  return steps;
}

constexpr Percent kMixes[] = {{100, 0, 100, 0, 100, 0}, {0, 0, 0, 0, 0, 0},
                              {0, 100, 0, 100, 0, 100}, {50, 25, 50, 25, 50, 50},
                              {20, 80, 0, 50, 50, 0},   {30, 0, 50, 0, 0, 50},
                              {0, 50, 30, 70, 100, 0}};

TEST(ScheduleChecker, FindsNoFaultInAnySchedule) {
  for (const auto& percent : kMixes) {
    for (const auto schedule :
         {ScheduleKind::rolling, ScheduleKind::zigzag, ScheduleKind::row, ScheduleKind::flexgen}) {
      for (const int stages : {1, 2, 3}) {
        for (const bool direct : {true, false}) {
          for (const auto attention : {Switch::off, Switch::on}) {
            for (const bool compressed : {false, true}) {
              const Case c{percent, schedule, stages, direct, attention, 1 + stages, 4, compressed};
              SCOPED_TRACE(name(c));
              for (const auto& steps : steps_of(c)) {
                EXPECT_GT(steps.size(), 50u);
                ASSERT_THAT(check_schedule(steps), IsEmpty());
              }
            }
          }
        }
      }
    }
  }
}

/// What is surely ended when each step begins, to tell which waits follow from others.
class Clocks {
 public:
  using Clock = std::array<std::int64_t, kResources>;

  explicit Clocks(const std::vector<Step>& steps) {
    for (const auto& step : steps) {
      auto clock = before(step, step.waits);
      const auto r = static_cast<std::size_t>(step.resource);
      clocks_[step.id] = clock;
      positions_[step.id] = {r, ++counts_[r]};
      last_[r] = clock;
      if (one_at_a_time(step.resource)) {
        last_[r][r] = counts_[r];
      }
      entered_[step.id] = enter_;
      enter_ = {};
    }
  }

  /// Whether the step would come after `wait` by its other waits and its queue alone.
  [[nodiscard]] bool implied(const Step& step, const StepId& wait) const {
    auto clock = entered_.at(step.id);
    for (const auto& other : step.waits) {
      if (other != wait) {
        join(clock, other);
      }
    }
    const auto& [resource, position] = positions_.at(wait);
    return clock[resource] >= position;
  }

 private:
  Clock before(const Step& step, const std::vector<StepId>& waits) {
    enter_ = last_[static_cast<std::size_t>(step.resource)];
    auto clock = enter_;
    for (const auto& wait : waits) {
      join(clock, wait);
    }
    return clock;
  }
  void join(Clock& clock, const StepId& id) const {
    const auto& other = clocks_.at(id);
    for (std::size_t r = 0; r < clock.size(); ++r) {
      clock[r] = std::max(clock[r], other[r]);
    }
    const auto& [resource, position] = positions_.at(id);
    clock[resource] = std::max(clock[resource], position);
  }

  std::map<StepId, Clock> clocks_, entered_;
  std::map<StepId, std::pair<std::size_t, std::int64_t>> positions_;
  std::array<std::int64_t, kResources> counts_{};
  std::array<Clock, kResources> last_{};
  Clock enter_{};
};

/// "mlp after read_weights" -> how often it was taken away.
using Tried = std::map<std::string, int>;

/// Takes away each wait that does not follow from others, and expects a fault each time. Three of a
/// kind are enough.
void expect_every_wait_to_be_missed(std::vector<Step> steps, Tried& tried) {
  const Clocks clocks(steps);
  std::map<StepId, StepKind> kind;
  for (const auto& step : steps) {
    kind[step.id] = step.kind;
  }
  for (auto& step : steps) {
    for (std::size_t i = 0; i < step.waits.size(); ++i) {
      const auto wait = step.waits[i];
      const auto what = to_string(step.kind) + " after " + to_string(kind[wait]);
      if (tried[what] >= 3 || clocks.implied(step, wait)) {
        continue;
      }
      ++tried[what];
      step.waits.erase(step.waits.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_THAT(check_schedule(steps), Not(IsEmpty())) << what;
      step.waits.insert(step.waits.begin() + static_cast<std::ptrdiff_t>(i), wait);
    }
  }
}

// FlexGen's schedule synchronises where no buffer asks for it, so it is left out.
TEST(ScheduleChecker, MissesEveryWaitThatIsTakenAway) {
  Tried tried;
  for (const auto& percent : kMixes) {
    for (const auto schedule : {ScheduleKind::rolling, ScheduleKind::zigzag}) {
      for (const int stages : {1, 3}) {
        for (const bool direct : {true, false}) {
          for (const auto attention : {Switch::off, Switch::on}) {
            for (const bool compressed : {false, true}) {
              const Case c{percent, schedule, stages, direct, attention, 1 + stages, 4, compressed};
              SCOPED_TRACE(name(c));
              for (const auto& steps : steps_of(c)) {
                expect_every_wait_to_be_missed(steps, tried);
              }
            }
          }
        }
      }
    }
  }
  const auto found =
      std::count_if(tried.begin(), tried.end(), [](const auto& kind) { return kind.second > 0; });
  EXPECT_GT(found, 45) << "kinds of dependencies";
}

TEST(ScheduleChecker, ProductsFindTheirOwnUnitWidened) {
  std::int64_t products = 0;
  std::vector<Percent> mixes(std::begin(kMixes), std::end(kMixes));
  // Nothing to wait for but the widening itself: the next unit could begin early.
  mixes.push_back({100, 0, 0, 100, 100, 0});
  for (const auto& percent : mixes) {
    for (const auto schedule :
         {ScheduleKind::rolling, ScheduleKind::zigzag, ScheduleKind::row, ScheduleKind::flexgen}) {
      for (const auto attention : {Switch::off, Switch::on}) {
        const Case c{percent, schedule, 2, true, attention, 2, 4, true};
        SCOPED_TRACE(name(c));
        for (const auto& steps : steps_of(c)) {
          Step widened;
          for (const auto& step : steps) {
            if (step.kind == StepKind::widen_weights) {
              widened = step;
            } else if (step.kind == StepKind::attention_in ||
                       step.kind == StepKind::attention_out || step.kind == StepKind::mlp) {
              ++products;
              ASSERT_EQ(step.id.visit, widened.id.visit);
              ASSERT_EQ(step.layer, widened.layer);
              ASSERT_EQ(step.unit, widened.unit);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(products, 10000);
}

TEST(ScheduleChecker, NamesAnUnorderedPair) {
  auto steps = steps_of({.stages = 2})[1];
  for (auto& step : steps) {
    if (step.kind == StepKind::attention_in) {
      step.waits.clear();
    }
  }
  EXPECT_THAT(check_schedule(steps).at(0),
              HasSubstr("nothing orders visit 0 step 0 (receive_hidden) and visit 0 step 1 "
                        "(attention_in)"));
}

TEST(ScheduleChecker, RefusesAWaitForALaterStep) {
  auto steps = steps_of({})[0];
  steps[1].waits.push_back({99, 0});
  EXPECT_THAT(check_schedule(steps).at(0), HasSubstr("does not come before it"));
}

}  // namespace
}  // namespace stagecoach::stage
