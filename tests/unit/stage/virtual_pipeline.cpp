#include "unit/stage/virtual_pipeline.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "stage/partition.hpp"

namespace stagecoach::testing {
namespace {

using stage::Resource;
using stage::StepKind;

/// When the parts of one visit happened on one stage.
struct VisitTimes {
  double plan_sent = 0;
  double hidden_sent = 0;
  double tokens_sent = 0;
};

class StageClock {
 public:
  StageClock(const stage::StagePlan& plan, const VirtualCosts& costs)
      : scheduler_(plan), costs_(costs) {
    record.plan = plan;
  }

  /// `known` is when the stage learns of the visit, `hidden_sent` when its input was sent.
  VisitTimes pass(const stage::Visit& visit, double known, double hidden_sent) {
    auto schedule = scheduler_.next(visit);
    double issue = std::max(known, issued_);
    if (visit_ends_.size() >= static_cast<std::size_t>(stage::kHiddenRing)) {
      issue = std::max(issue, visit_ends_[visit_ends_.size() - stage::kHiddenRing]);
    }
    issued_ = issue;
    VisitTimes times;
    double end = issue;
    for (auto& step : schedule.steps) {
      const double step_end = run(step, issue, hidden_sent);
      end = std::max(end, step_end);
      if (step.kind == StepKind::send_plan) {
        times.plan_sent = step_end;
      } else if (step.kind == StepKind::send_hidden) {
        times.hidden_sent = step_end;
      } else if (step.kind == StepKind::send_tokens) {
        times.tokens_sent = step_end;
      }
      record.steps.push_back(std::move(step));
    }
    visit_ends_.push_back(end);
    return times;
  }

  VirtualStage record;

 private:
  double run(const stage::Step& step, double issue, double hidden_sent) {
    auto& free = free_[static_cast<std::size_t>(step.resource)];
    double start = std::max(issue, free);
    for (const auto& wait : step.waits) {
      start = std::max(start, ends_.at(wait));
    }
    double end = start;
    if (step.resource != Resource::send && step.resource != Resource::receive) {
      end += costs_.work(step);
      if (step.resource == Resource::compute) {
        record.computed.push_back({step.id.visit, start, end});
      }
    } else if (step.kind == StepKind::send_hidden) {
      end += costs_.wire;
    } else if (step.kind == StepKind::send_tokens) {
      end += costs_.token_return;
    } else if (step.kind == StepKind::receive_hidden) {
      end = std::max(start, hidden_sent);
    }
    free = end;
    ends_[step.id] = end;
    return end;
  }

  stage::Scheduler scheduler_;
  const VirtualCosts& costs_;
  std::array<double, stage::kResources> free_{};
  std::map<stage::StepId, double> ends_;
  std::vector<double> visit_ends_;
  double issued_ = 0;
};

class Pipeline {
 public:
  Pipeline(const VirtualStages& stages, std::int64_t longest_pages, const VirtualCosts& costs) {
    for (const auto& contents : stage::partition_layers(stages.spec.layers, stages.stages, {})) {
      clocks_.emplace_back(stage::make_plan({stages.spec, contents, stages.shape, stages.weights},
                                            stages.policy, stages.options, longest_pages,
                                            stages.page_capacity, stages.weight_buffers),
                           costs);
    }
  }

  /// Returns when the visit's tokens are back.
  double pass(const stage::Visit& visit, double start) {
    VisitTimes times{start, start, start};
    for (auto& clock : clocks_) {
      times = clock.pass(visit, times.plan_sent, times.hidden_sent);
    }
    return times.tokens_sent;
  }

  std::vector<VirtualStage> take() {
    std::vector<VirtualStage> stages;
    for (auto& clock : clocks_) {
      stages.push_back(std::move(clock.record));
    }
    return stages;
  }

 private:
  std::vector<StageClock> clocks_;
};

}  // namespace

double VirtualStage::busy(std::int64_t visits) const {
  double sum = 0;
  for (const auto& span : computed) {
    sum += span.visit < visits ? span.end - span.start : 0;
  }
  return sum;
}

double VirtualStage::idle(std::int64_t visits) const {
  double end = 0;
  for (const auto& span : computed) {
    end = span.visit < visits ? std::max(end, span.end) : end;
  }
  return end - computed.front().start - busy(visits);
}

VirtualRun run_virtual_pipeline(const VirtualStages& stages,
                                const std::vector<std::int64_t>& prompt_lengths,
                                const std::vector<std::int64_t>& new_tokens,
                                const VirtualCosts& costs) {
  const auto& shape = stages.shape;
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<stage::SequenceInput> inputs;
  for (const auto length : prompt_lengths) {
    prompts.emplace_back(static_cast<std::size_t>(length), 5);
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    inputs.push_back({.prompt = prompts[i], .max_new_tokens = new_tokens[i], .sampling = {}});
  }
  std::int64_t longest_pages = 0;
  for (const auto& input : inputs) {
    longest_pages =
        std::max(longest_pages, offload::pages_for(input.stored_tokens(), shape.page_tokens));
  }
  stage::Batcher batcher(shape, stages.page_capacity, inputs);
  Pipeline pipeline(stages, longest_pages, costs);
  VirtualRun run;
  std::vector<std::int64_t> made(prompts.size(), 0);
  std::vector<std::optional<std::pair<stage::Visit, double>>> in_flight(
      static_cast<std::size_t>(shape.inner_iterations));
  double now = 0;
  for (bool any = true; any || !batcher.done();) {
    any = false;
    for (std::int32_t block = 0; block < shape.inner_iterations; ++block) {
      auto& flight = in_flight[static_cast<std::size_t>(block)];
      if (flight) {
        now = std::max(now, flight->second);
        std::vector<stage::TokenOutcome> outcomes;
        for (const auto& entry : flight->first.entries) {
          const auto sequence = static_cast<std::size_t>(batcher.sequence_at(block, entry.slot));
          const bool ended = entry.samples() && ++made[sequence] == new_tokens[sequence];
          outcomes.push_back({7, ended});
        }
        batcher.complete(flight->first, outcomes);
        flight.reset();
      }
      if (auto visit = batcher.next_visit(block)) {
        flight.emplace(*visit, pipeline.pass(*visit, now));
        run.end = std::max(run.end, flight->second);
        run.visits.push_back(std::move(*visit));
        any = true;
      }
    }
  }
  run.stages = pipeline.take();
  return run;
}

}  // namespace stagecoach::testing
