#include "plan/job_planner.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "plan/plan_improver.hpp"
#include "plan/stage_choice.hpp"
#include "plan/stage_estimate.hpp"
#include "stage/partition.hpp"

namespace stagecoach::plan {
namespace {

/// Choices that are scored before the best of them are improved.
constexpr std::size_t kScored = 24;
/// Choices from which the linear programs, and the simulator, climb.
constexpr std::size_t kClimbs = 5;
/// Plans of the frontier, at most.
constexpr std::size_t kFrontier = 12;

/// A choice with what the linear programs make of it.
struct Candidate {
  BatchChoice choice;
  PartitionChoice partition;
  double seconds = 0;          ///< of the whole job
  double latency_seconds = 0;  ///< of a request
};

/// Every choice is solved once.
class Candidates {
 public:
  explicit Candidates(const PlanRequest& request) : request_(request) {}

  const std::optional<Candidate>& of(const BatchChoice& choice) {
    const auto found = std::find_if(tried_.begin(), tried_.end(),
                                    [&](const auto& tried) { return tried->choice == choice; });
    if (found != tried_.end()) {
      return (*found)->candidate;
    }
    auto& tried = *tried_.emplace_back(std::make_unique<Tried>(request_, choice, solver_));
    tried.candidate = solve(tried);
    return tried.candidate;
  }

  /// The candidate as a plan that fits.
  const std::optional<JobPlan>& plan(const Candidate& candidate) {
    auto& tried = **std::find_if(tried_.begin(), tried_.end(),
                                 [&](const auto& one) { return one->choice == candidate.choice; });
    if (!tried.planned) {
      tried.planned = true;
      tried.plan = make_plan(tried);
    }
    return tried.plan;
  }

  [[nodiscard]] std::int64_t tried() const { return static_cast<std::int64_t>(tried_.size()); }
  [[nodiscard]] std::int64_t programs_solved() const {
    std::int64_t solved = 0;
    for (const auto& tried : tried_) {
      solved += tried->stages.programs_solved();
    }
    return solved;
  }
  /// All that fit, the best first.
  [[nodiscard]] std::vector<const Candidate*> by_seconds() const {
    std::vector<const Candidate*> all;
    for (const auto& tried : tried_) {
      if (tried->candidate) {
        all.push_back(&*tried->candidate);
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto* a, const auto* b) { return a->seconds < b->seconds; });
    return all;
  }

 private:
  struct Tried {
    Tried(const PlanRequest& request, const BatchChoice& what, Solver& solver)
        : choice(what), stages(request, choice, solver) {}
    BatchChoice choice;
    StageChoices stages;
    std::optional<Candidate> candidate;
    bool planned = false;
    std::optional<JobPlan> plan;
  };

  /// Rounding may ask for a little more than there is.
  std::optional<JobPlan> make_plan(Tried& tried) {
    std::optional<JobPlan> most;
    for (const double spare : {0.0, 0.005, 0.02}) {
      auto plan = plan_in(tried, tried.candidate->partition, spare);
      if (!plan) {
        continue;
      }
      const auto pages = plan->stages.front().memory.kv_pages_per_layer;
      if (!most || pages > most->stages.front().memory.kv_pages_per_layer) {
        most = std::move(plan);
      }
      if (pages == demand_for(request_.requests, tried.choice.batch).wanted_pages) {
        break;
      }
    }
    return most;
  }

  std::optional<Candidate> solve(Tried& tried) {
    auto partition = best_partition(request_, tried.stages);
    if (!partition) {
      return std::nullopt;
    }
    Candidate candidate{.choice = tried.choice, .partition = *std::move(partition)};
    const auto blocks = static_cast<double>(tried.choice.batch.inner_iterations);
    const auto round =
        std::max(blocks * candidate.partition.slowest_seconds, candidate.partition.way_seconds);
    const auto& steady = tried.stages.steady();
    candidate.seconds = steady.visits_a_block * round;
    candidate.latency_seconds = steady.visits_a_request * round;
    return candidate;
  }

  std::optional<JobPlan> plan_in(Tried& tried, const PartitionChoice& partition, double spare) {
    JobPlan plan{.weights = tried.choice.weights,
                 .batch = tried.choice.batch,
                 .schedule = request_.schedule,
                 .layers_per_stage = partition.layers};
    std::vector<stage::StageShape> shapes;
    const auto parts = stage::partition_layers(
        request_.spec.layers, static_cast<int>(request_.cluster.stages()), partition.layers);
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const auto best = tried.stages.exact(k, partition.layers[k], spare);
      if (!best) {
        return std::nullopt;
      }
      plan.policies.push_back(tried.stages.policy(k, *best));
      shapes.push_back({.spec = request_.spec,
                        .contents = parts[k],
                        .batch = plan.batch,
                        .weights = plan.weights});
    }
    try {
      plan.stages = plan_stages(shapes, plan.policies, request_.cluster, request_.requests,
                                request_.schedule, true);
    } catch (const OutOfMemory&) {
      return std::nullopt;
    }
    return plan;
  }

  const PlanRequest& request_;
  Solver solver_;
  std::vector<std::unique_ptr<Tried>> tried_;
};

/// Climbs over choices by the linear programs alone.
void climb(const PlanRequest& request, Candidates& candidates, BatchChoice from) {
  constexpr int kMostSteps = 8;
  for (int step = 0; step < kMostSteps; ++step) {
    auto best = from;
    double seconds = candidates.of(from)->seconds;
    for (const auto& next : neighbours(request, from)) {
      const auto& candidate = candidates.of(next);
      if (candidate && candidate->seconds < 0.999 * seconds) {
        seconds = candidate->seconds;
        best = next;
      }
    }
    if (best == from) {
      return;
    }
    from = best;
  }
}

/// What is scored first: the fastest, and of each number of places the fastest, for jobs that must
/// answer sooner.
std::vector<const Candidate*> to_be_scored(const PlanRequest& request,
                                           const std::vector<const Candidate*>& by_seconds) {
  const auto soon = [&](const Candidate& candidate) {
    constexpr double kDoubt = 1.5;
    return request.max_latency_seconds <= 0 ||
           candidate.latency_seconds < kDoubt * request.max_latency_seconds;
  };
  // Neighbours are much alike: of those that keep as much they will be tried later.
  constexpr std::ptrdiff_t kMostAlike = 2;
  const auto alike = [](const Candidate& a, const Candidate& b) {
    return a.choice.weights == b.choice.weights &&
           a.choice.cpu_attention == b.choice.cpu_attention &&
           a.choice.batch.kv_format == b.choice.batch.kv_format &&
           a.choice.batch.places() == b.choice.batch.places();
  };
  std::vector<const Candidate*> chosen;
  for (const auto* candidate : by_seconds) {
    const auto known = std::count_if(chosen.begin(), chosen.end(),
                                     [&](const auto* other) { return alike(*other, *candidate); });
    if (chosen.size() < kScored && known < kMostAlike && soon(*candidate)) {
      chosen.push_back(candidate);
    }
  }
  std::vector<std::int64_t> places;
  for (const auto* candidate : by_seconds) {
    const auto count = candidate->choice.batch.places();
    constexpr std::size_t kMostPlaces = 6;
    if (places.size() < kMostPlaces &&
        std::find(places.begin(), places.end(), count) == places.end()) {
      places.push_back(count);
      if (std::find(chosen.begin(), chosen.end(), candidate) == chosen.end()) {
        chosen.push_back(candidate);
      }
    }
  }
  return chosen;
}

bool cpu_attention_of(const JobPlan& plan) {
  return std::any_of(plan.policies.begin(), plan.policies.end(),
                     [](const auto& policy) { return policy.cpu_attention == stage::Switch::on; });
}

BatchChoice choice_of(const JobPlan& plan) {
  return {.weights = plan.weights, .batch = plan.batch, .cpu_attention = cpu_attention_of(plan)};
}

/// Plans of the choices next to a plan's.
std::vector<JobPlan> plans_beside(const PlanRequest& request, Candidates& candidates,
                                  const JobPlan& plan) {
  std::vector<JobPlan> plans;
  for (const auto& next : neighbours(request, choice_of(plan))) {
    if (const auto& candidate = candidates.of(next)) {
      if (const auto& other = candidates.plan(*candidate)) {
        plans.push_back(*other);
      }
    }
  }
  return plans;
}

/// One plan of each choice, by tokens a second.
std::vector<JobPlan> best_of(const PlanRequest& request, std::vector<JobPlan> scored) {
  std::stable_sort(scored.begin(), scored.end(), [](const JobPlan& a, const JobPlan& b) {
    return a.tokens_per_second > b.tokens_per_second;
  });
  std::vector<JobPlan> best;
  for (auto& plan : scored) {
    const bool late =
        request.max_latency_seconds > 0 && plan.max_latency_seconds > request.max_latency_seconds;
    const bool known = std::any_of(best.begin(), best.end(), [&](const JobPlan& other) {
      return choice_of(plan) == choice_of(other);
    });
    if (!late && !known) {
      best.push_back(std::move(plan));
    }
  }
  return best;
}

std::vector<JobPlan> frontier_of(std::vector<JobPlan> scored) {
  std::stable_sort(scored.begin(), scored.end(), [](const JobPlan& a, const JobPlan& b) {
    return a.max_latency_seconds < b.max_latency_seconds ||
           (a.max_latency_seconds == b.max_latency_seconds &&
            a.tokens_per_second > b.tokens_per_second);
  });
  std::vector<JobPlan> frontier;
  for (auto& plan : scored) {
    if (frontier.empty() || plan.tokens_per_second > frontier.back().tokens_per_second) {
      frontier.push_back(std::move(plan));
    }
  }
  return frontier;
}

/// The first ones, with all their layers simulated; by tokens a second.
std::vector<JobPlan> rescored(const PlanRequest& request, std::vector<JobPlan> plans,
                              std::size_t most) {
  plans.resize(std::min(plans.size(), most));
  const bool all_layers = std::all_of(plans.begin(), plans.end(), [](const JobPlan& plan) {
    return *std::max_element(plan.layers_per_stage.begin(), plan.layers_per_stage.end()) <=
           PlanScores::kLayers;
  });
  for (auto& plan : plans) {
    plan = all_layers ? plan : score(request, plan);
  }
  std::stable_sort(plans.begin(), plans.end(), [](const JobPlan& a, const JobPlan& b) {
    return a.tokens_per_second > b.tokens_per_second;
  });
  return plans;
}

/// The least that the job can do with, on the slowest tiers: what is missing is what it misses.
JobPlan least_plan(const PlanRequest& request) {
  const auto choice = least_choice(request);
  JobPlan plan{.weights = choice.weights, .batch = choice.batch, .schedule = request.schedule};
  for (std::size_t k = 0; k < request.cluster.stages(); ++k) {
    const auto tiers = tiers_for(request, k, choice.weights);
    auto policy = budget_of(request, k);
    Fractions fractions;
    const auto slowest = [](bool cpu, bool disk) {
      return std::array<double, 3>{cpu || disk ? 0.0 : 1.0, cpu && !disk ? 1.0 : 0.0,
                                   disk ? 1.0 : 0.0};
    };
    fractions.weights = slowest(tiers.weights_cpu, tiers.weights_disk);
    fractions.cache = slowest(tiers.cache_cpu, tiers.cache_disk);
    policy.percent = to_percent(fractions);
    policy.cpu_attention = stage::Switch::off;
    plan.policies.push_back(policy);
  }
  return plan;
}

void check(const PlanRequest& request) {
  if (request.requests.empty()) {
    throw ConfigError("nothing to plan: the workload has no requests");
  }
  STAGECOACH_CHECK(
      request.cluster.stages() >= 1 &&
          (request.budgets.size() == 1 || request.budgets.size() == request.cluster.stages()),
      "budgets of {} stages for {}", request.budgets.size(), request.cluster.stages());
  for (const auto& one : request.requests) {
    if (one.prompt + one.generated > request.spec.max_positions) {
      throw ConfigError(fmt::format(
          "a request of {} prompt and {} new tokens: the model takes {} in all; shorten it",
          one.prompt, one.generated, request.spec.max_positions));
    }
  }
}

void check_latency(const PlanRequest& request, const std::vector<JobPlan>& scored) {
  const auto soonest =
      std::min_element(scored.begin(), scored.end(), [](const JobPlan& a, const JobPlan& b) {
        return a.max_latency_seconds < b.max_latency_seconds;
      });
  throw ConfigError(fmt::format(
      "--max-latency {:g}: no plan found ends each request so soon; the soonest takes {:.3g} s, at "
      "{:.3g} tokens/s: allow as much, ask for fewer new tokens, or use more stages",
      request.max_latency_seconds, soonest->max_latency_seconds, soonest->tokens_per_second));
}

}  // namespace

PlanResult plan_job(const PlanRequest& request) {
  check(request);
  Candidates candidates(request);
  for (const auto& choice : first_choices(request)) {
    candidates.of(choice);
  }
  std::vector<BatchChoice> starts;
  for (const auto* candidate : candidates.by_seconds()) {
    if (starts.size() < kClimbs) {
      starts.push_back(candidate->choice);
    }
  }
  for (const auto& start : starts) {
    climb(request, candidates, start);
  }
  PlanScores scores(request, request.most_steps);
  for (const auto* candidate : to_be_scored(request, candidates.by_seconds())) {
    if (const auto& plan = candidates.plan(*candidate)) {
      scores.score(*plan);
    }
  }
  if (scores.all().empty()) {
    scores.score(least_plan(request));
  }
  if (scores.all().empty()) {
    score(request, least_plan(request));  // says what is missing
  }
  auto found = scores.all();
  std::stable_sort(found.begin(), found.end(),
                   [&](const JobPlan& a, const JobPlan& b) { return better(request, a, b); });
  found.resize(std::min(found.size(), kClimbs));
  for (auto& plan : found) {
    improve(request, std::move(plan), scores,
            [&](const JobPlan& beside) { return plans_beside(request, candidates, beside); });
  }
  constexpr std::size_t kAlternatives = 8;
  PlanResult result{
      .best = rescored(request, best_of(request, scores.all()), kAlternatives),
      .frontier = frontier_of(rescored(request, frontier_of(scores.all()), kFrontier)),
      .shapes_tried = candidates.tried(),
      .programs_solved = candidates.programs_solved()};
  if (result.best.empty()) {
    check_latency(request, scores.all());
  }
  return result;
}

}  // namespace stagecoach::plan
