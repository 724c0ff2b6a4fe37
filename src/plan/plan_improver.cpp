#include "plan/plan_improver.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "plan/stage_choice.hpp"
#include "plan/stage_estimate.hpp"

namespace stagecoach::plan {
namespace {

/// What a gain must be to count.
constexpr double kWorthIt = 1.0005;

/// A kind's shares in per cent: on device, CPU and disk.
struct Shares {
  double* device;
  double* cpu;
  std::array<bool, 3> allowed;

  [[nodiscard]] std::array<double, 3> all() const { return {*device, *cpu, 100 - *device - *cpu}; }
  void set(const std::array<double, 3>& shares) const {
    *device = shares[0];
    *cpu = shares[1];
  }
};

std::array<Shares, 3> kinds_of(stage::Percent& percent, const TiersInUse& tiers) {
  return {
      Shares{&percent.weights_device,
             &percent.weights_cpu,
             {true, tiers.weights_cpu, tiers.weights_disk}},
      Shares{&percent.cache_device, &percent.cache_cpu, {true, tiers.cache_cpu, tiers.cache_disk}},
      Shares{&percent.hidden_device,
             &percent.hidden_cpu,
             {true, tiers.hidden_cpu, tiers.hidden_disk}}};
}

struct Shift {
  std::size_t kind = 0;  ///< weights, cache, activations
  std::size_t from = 0;  ///< tiers
  std::size_t to = 0;
  double percent = 0;
};

/// False if there is nothing to move, or the tier may not be used.
bool shift(stage::Policy& policy, const TiersInUse& tiers, const Shift& by) {
  const auto kinds = kinds_of(policy.percent, tiers);
  const auto& kind = kinds[by.kind];
  auto shares = kind.all();
  const auto moved = std::min(by.percent, shares[by.from]);
  constexpr double kNothing = 1e-3;
  if (!kind.allowed[by.to] || moved < kNothing) {
    return false;
  }
  shares[by.from] -= moved;
  shares[by.to] += moved;
  kind.set(shares);
  return true;
}

/// Shifts that are made together: what one takes of a tier, the other gives back.
using Move = std::vector<Shift>;

/// The plan with the move on one stage, or on all of them that allow it.
std::optional<JobPlan> shifted(const PlanRequest& request, const JobPlan& plan, const Move& by,
                               std::optional<std::size_t> stage) {
  auto other = plan;
  bool any = false;
  for (std::size_t k = 0; k < other.policies.size(); ++k) {
    if (!stage || *stage == k) {
      auto policy = other.policies[k];
      const auto tiers = tiers_for(request, k, plan.weights);
      const bool moved = std::all_of(by.begin(), by.end(),
                                     [&](const Shift& one) { return shift(policy, tiers, one); });
      if (moved) {
        other.policies[k] = policy;
        any = true;
      }
    }
  }
  return any ? std::optional(std::move(other)) : std::nullopt;
}

std::vector<Move> moves() {
  std::vector<Move> moves;
  for (const double percent : {100.0, 25.0, 5.0, 1.0}) {
    for (std::size_t kind = 0; kind < 3; ++kind) {
      for (std::size_t from = 0; from < 3; ++from) {
        for (std::size_t to = 0; to < 3; ++to) {
          if (from != to) {
            moves.push_back({{kind, from, to, percent}});
          }
        }
      }
    }
  }
  // The device's memory goes from the cache to weights, or the other way.
  for (const double percent : {25.0, 5.0}) {
    for (const auto other : {std::size_t{1}, std::size_t{2}}) {
      moves.push_back({{0, other, 0, percent}, {1, 0, 1, percent}});
      moves.push_back({{0, other, 0, percent}, {1, 0, 1, 100}});
      moves.push_back({{0, 0, other, percent}, {1, 1, 0, percent}});
      moves.push_back({{0, 0, other, percent}, {1, 1, 0, 100}});
    }
  }
  return moves;
}

/// Tries a change as often as it helps.
class Search {
 public:
  Search(const PlanRequest& request, JobPlan plan, PlanScores& scores)
      : request_(request), best_(std::move(plan)), scores_(scores) {}

  bool take_if_better(const JobPlan& other) {
    auto scored = scores_.score(other);
    if (!scored || !better(request_, *scored, best_)) {
      return false;
    }
    best_ = *std::move(scored);
    return true;
  }

  bool shift_while_it_helps(const Move& by, std::optional<std::size_t> stage) {
    bool helped = false;
    while (!scores_.exhausted()) {
      const auto other = shifted(request_, best_, by, stage);
      if (!other || !take_if_better(*other)) {
        break;
      }
      helped = true;
    }
    return helped;
  }

  [[nodiscard]] const JobPlan& best() const { return best_; }

 private:
  const PlanRequest& request_;
  JobPlan best_;
  PlanScores& scores_;
};

}  // namespace

std::int64_t steps_to_score(const PlanRequest& request, const BatchChoice& choice) {
  const auto steady = steady_job(choice.batch, mean_of(request.requests), request.cluster.stages());
  const auto& batch = choice.batch;
  const auto blocks = static_cast<double>(batch.inner_iterations);
  const auto requests = static_cast<double>(request.requests.size());
  // One and two rounds of all places, if there are so many requests.
  constexpr double kRounds = 3;
  const auto rounds = std::min(1.0, kRounds * static_cast<double>(batch.places()) / requests);
  // Of a layer: steps, and pages that steps name.
  constexpr double kStepsOfABatch = 12;
  constexpr double kStepsOfAPage = 0.2;
  const auto pages = static_cast<double>(demand_for(request.requests, batch).wanted_pages) / blocks;
  const auto layers =
      std::min(request.spec.layers,
               PlanScores::kLayers * static_cast<std::int64_t>(request.cluster.stages()));
  const auto of_a_layer =
      kStepsOfABatch * static_cast<double>(batch.num_gpu_batches) + kStepsOfAPage * pages;
  return static_cast<std::int64_t>(rounds * steady.visits_a_block * blocks * of_a_layer *
                                   static_cast<double>(layers)) +
         1;
}

std::optional<JobPlan> PlanScores::score(const JobPlan& plan) {
  if (exhausted()) {
    return std::nullopt;
  }
  left_ -= steps_to_score(request_, {.weights = plan.weights, .batch = plan.batch});
  try {
    all_.push_back(plan::score(request_, plan, {.most_layers = kLayers}));
    return all_.back();
  } catch (const OutOfMemory&) {  // one placement of many
    return std::nullopt;
  }
}

bool better(const PlanRequest& request, const JobPlan& a, const JobPlan& b) {
  const auto late = [&](const JobPlan& plan) {
    return request.max_latency_seconds > 0 &&
           plan.max_latency_seconds > request.max_latency_seconds;
  };
  if (late(a) != late(b)) {
    return late(b);
  }
  return late(a) ? a.max_latency_seconds * kWorthIt < b.max_latency_seconds
                 : a.tokens_per_second > kWorthIt * b.tokens_per_second;
}

JobPlan improve(const PlanRequest& request, JobPlan plan, PlanScores& scores,
                const std::function<std::vector<JobPlan>(const JobPlan&)>& others) {
  Search search(request, std::move(plan), scores);
  constexpr std::size_t kFewStages = 4;
  const auto stages = request.cluster.stages();
  bool helped = true;
  while (helped && !scores.exhausted()) {
    helped = false;
    for (const auto& other : others(search.best())) {
      helped = search.take_if_better(other) || helped;
    }
    for (const auto& by : moves()) {
      helped = search.shift_while_it_helps(by, std::nullopt) || helped;
      for (std::size_t k = 0; stages > 1 && stages <= kFewStages && k < stages; ++k) {
        helped = search.shift_while_it_helps(by, k) || helped;
      }
    }
  }
  return search.best();
}

}  // namespace stagecoach::plan
