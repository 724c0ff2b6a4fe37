#include "plan/stage_choice.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/stage_estimate.hpp"
#include "stage/partition.hpp"

namespace stagecoach::plan {
namespace {

stage::Budgets without(stage::Budgets budgets, double spare) {
  const auto cut = [&](std::size_t& bytes) {
    bytes = static_cast<std::size_t>(static_cast<double>(bytes) * (1 - spare));
  };
  cut(budgets.device);
  cut(budgets.cpu);
  cut(budgets.disk);
  cut(budgets.together);
  return budgets;
}

/// Which tier activations have, as a number.
int hidden_of(const TiersInUse& tiers) { return tiers.hidden_disk ? 2 : tiers.hidden_cpu ? 1 : 0; }

/// The tiers that activations may have, the fastest first.
std::vector<TiersInUse> hidden_options(const TiersInUse& allowed) {
  auto tiers = allowed;
  tiers.hidden_cpu = tiers.hidden_disk = false;
  std::vector<TiersInUse> options{tiers};
  if (allowed.hidden_cpu) {
    tiers.hidden_cpu = true;
    options.push_back(tiers);
    tiers.hidden_cpu = false;
  }
  if (allowed.hidden_disk) {
    tiers.hidden_disk = true;
    options.push_back(tiers);
  }
  return options;
}

}  // namespace

const stage::Policy& budget_of(const PlanRequest& request, std::size_t stage) {
  return request.budgets.size() == 1 ? request.budgets.front() : request.budgets.at(stage);
}

/// Without a GPU, DRAM is the device's memory: the CPU's part is a copy of it that only budgets can
/// ask for.
TiersInUse tiers_for(const PlanRequest& request, std::size_t stage,
                     const model::WeightFormat& weights) {
  const auto& profile = request.cluster.of_stage(stage);
  const auto& policy = budget_of(request, stage);
  const auto budgets = budgets_for(profile, policy);
  const bool cpu = profile.gpu || budgets.device < budgets.together;
  const bool disk = !profile.disk.read.empty() && !profile.disk.write.empty();
  const bool spills = disk && !policy.offload_dir.empty() && budgets.disk > 0;
  return {.weights_cpu = cpu,
          .weights_disk = disk && (weights == request.weights || !request.packed_while_loaded),
          .cache_cpu = cpu,
          .cache_disk = spills,
          .hidden_cpu = cpu,
          .hidden_disk = spills};
}

StageChoices::StageChoices(const PlanRequest& request, const BatchChoice& choice, Solver& solver)
    : request_(request),
      choice_(choice),
      solver_(solver),
      steady_(steady_job(choice.batch, mean_of(request.requests), request.cluster.stages())),
      demand_(demand_for(request.requests, choice.batch)) {
  for (std::size_t k = 0; k < request.cluster.stages(); ++k) {
    like_.push_back(like(k));
  }
}

/// The first stage that is like this one but for its layers.
std::size_t StageChoices::like(std::size_t stage) const {
  const auto last = request_.cluster.stages() - 1;
  for (std::size_t k = 1; k < stage && stage != last; ++k) {
    if (request_.cluster.of_stage(k) == request_.cluster.of_stage(stage) &&
        request_.cluster.link_after(k) == request_.cluster.link_after(stage) &&
        budget_of(request_, k) == budget_of(request_, stage)) {
      return k;
    }
  }
  return stage;
}

stage::Policy StageChoices::policy(std::size_t stage, const StageChoice& chosen) const {
  auto policy = budget_of(request_, stage);
  policy.percent = to_percent(chosen.fractions);
  policy.weight_buffers = chosen.weight_buffers;
  const bool outside = chosen.fractions.cache[0] < 1;
  policy.cpu_attention = !outside                ? stage::Switch::automatic
                         : choice_.cpu_attention ? stage::Switch::on
                                                 : stage::Switch::off;
  return policy;
}

StageCase StageChoices::case_of(std::size_t stage, std::int64_t layers,
                                std::int64_t weight_buffers) const {
  const auto& profile = request_.cluster.of_stage(stage);
  auto policy = budget_of(request_, stage);
  policy.cpu_attention = choice_.cpu_attention ? stage::Switch::on : stage::Switch::off;
  policy.weight_buffers = weight_buffers;
  return {.shape = {.spec = request_.spec,
                    .contents = {.first_layer = 0,
                                 .layers = layers,
                                 .embedding = stage == 0,
                                 .head = stage + 1 == request_.cluster.stages()},
                    .batch = choice_.batch,
                    .weights = choice_.weights},
          .policy = policy,
          .profile = profile,
          .options = options_for(profile, request_.schedule, true),
          .demand = demand_,
          .link = request_.cluster.link_after(stage),
          .visits = steady_.visits};
}

bool StageChoices::knows_seconds(std::size_t stage, const TiersInUse& tiers,
                                 std::int64_t weight_buffers) const {
  return seconds_.contains({stage, hidden_of(tiers), weight_buffers});
}

const VisitSeconds& StageChoices::seconds_of(std::size_t stage, const TiersInUse& tiers,
                                             std::int64_t weight_buffers) {
  const auto key = std::tuple{stage, hidden_of(tiers), weight_buffers};
  auto found = seconds_.find(key);
  if (found == seconds_.end()) {
    found =
        seconds_
            .emplace(key, VisitSeconds(case_of(stage, request_.spec.layers, weight_buffers), tiers))
            .first;
  }
  return found->second;
}

std::optional<StageChoice> StageChoices::solve_for(const StageCase& stage, std::size_t number,
                                                   const TiersInUse& tiers, const Look& look) {
  std::optional<StageChoice> best;
  const auto regimes = look.rough ? rough_regimes_of(stage, tiers) : regimes_of(stage, tiers);
  for (const auto& regime : regimes) {
    LinearStage linear;
    fill_memory(linear, stage, regime);
    linear.budgets = without(linear.budgets, look.spare);
    if (look.rough) {
      linear.regime.cache_outside = linear.regime.cache_disk = {};
    }
    if (!linear.may_fit()) {
      continue;
    }
    const auto buffers = stage.policy.weight_buffers;
    if (!knows_seconds(number, tiers, buffers) && !solver_.solve(linear)) {
      continue;
    }
    seconds_of(number, tiers, buffers).fill(linear, stage.shape.contents.layers);
    ++programs_;
    const auto result = solver_.solve(linear);
    if (result && (!best || result->visit_seconds < best->visit_seconds)) {
      best = {result->fractions, result->visit_seconds, stage.policy.weight_buffers};
    }
    if (best && !regime.tiers.weights() && !regime.tiers.cache()) {
      break;  // everything is where it is used: the first regime
    }
  }
  return best;
}

/// Activations on the fastest tier with which anything fits; two buffers for weights, or one where
/// what that saves is worth more.
std::optional<StageChoice> StageChoices::solve_all(std::size_t stage, std::int64_t layers,
                                                   const Look& look) {
  auto allowed = tiers_for(request_, stage, choice_.weights);
  if (!look.rough) {  // of the tiers that the rough look has found to be worth it
    const auto& rough = this->best(stage, layers);
    if (!rough) {
      return std::nullopt;
    }
    allowed.cache_cpu = allowed.cache_cpu && rough->fractions.cache[1] > 0;
    allowed.cache_disk = allowed.cache_disk && rough->fractions.cache[2] > 0;
  }
  std::optional<StageChoice> best;
  for (const std::int64_t buffers : {0, 1}) {
    const auto one = case_of(stage, layers, buffers);
    for (const auto& tiers : hidden_options(allowed)) {
      const auto found = solve_for(one, stage, tiers, look);
      if (found && (!best || found->visit_seconds < best->visit_seconds)) {
        best = found;
      }
      if (found) {
        break;
      }
    }
    if (best && best->fractions.weights[0] == 1) {
      break;  // nothing is streamed
    }
  }
  return best;
}

const std::optional<StageChoice>& StageChoices::look_at(std::size_t stage, std::int64_t layers,
                                                        const Look& look) {
  const auto number = like_.at(stage);
  const auto key = std::tuple{number, layers, look};
  auto found = best_.find(key);
  if (found == best_.end()) {
    found = best_.emplace(key, solve_all(number, layers, look)).first;
  }
  return found->second;
}

const std::optional<StageChoice>& StageChoices::best(std::size_t stage, std::int64_t layers) {
  return look_at(stage, layers, {});
}

std::optional<StageChoice> StageChoices::exact(std::size_t stage, std::int64_t layers,
                                               double spare) {
  return look_at(stage, layers, {.rough = false, .spare = spare});
}

namespace {

/// More than any time: what does not fit, the more layers the more.
constexpr double kTooLarge = 1e30;

double seconds_or_misfit(StageChoices& choices, std::size_t stage, std::int64_t layers) {
  const auto& best = choices.best(stage, layers);
  return best ? best->visit_seconds : kTooLarge * static_cast<double>(layers);
}

/// Moves one layer away from the slowest stage; false if that makes nothing better.
bool move_a_layer(StageChoices& choices, std::vector<std::int64_t>& layers,
                  std::vector<double>& seconds) {
  const auto slowest =
      static_cast<std::size_t>(std::max_element(seconds.begin(), seconds.end()) - seconds.begin());
  if (layers[slowest] == 1) {
    return false;
  }
  const auto less = seconds_or_misfit(choices, slowest, layers[slowest] - 1);
  auto taker = layers.size();
  double more = seconds[slowest];
  for (std::size_t k = 0; k < layers.size(); ++k) {
    if (k != slowest) {
      const auto with_it = seconds_or_misfit(choices, k, layers[k] + 1);
      if (with_it < more) {
        more = with_it;
        taker = k;
      }
    }
  }
  constexpr double kWorthIt = 1 - 1e-6;
  if (taker == layers.size() || std::max(less, more) > kWorthIt * seconds[slowest]) {
    return false;
  }
  --layers[slowest];
  ++layers[taker];
  seconds[slowest] = less;
  seconds[taker] = more;
  return true;
}

}  // namespace

std::optional<PartitionChoice> best_partition(const PlanRequest& request, StageChoices& choices) {
  const auto stages = request.cluster.stages();
  std::vector<std::int64_t> layers;
  for (const auto& part :
       stage::partition_layers(request.spec.layers, static_cast<int>(stages), {})) {
    layers.push_back(part.layers);
  }
  std::vector<double> seconds;
  for (std::size_t k = 0; k < stages; ++k) {
    seconds.push_back(seconds_or_misfit(choices, k, layers[k]));
  }
  while (stages > 1 && move_a_layer(choices, layers, seconds)) {
  }
  PartitionChoice partition;
  partition.layers = layers;
  partition.slowest_seconds = *std::max_element(seconds.begin(), seconds.end());
  if (partition.slowest_seconds >= kTooLarge) {
    return std::nullopt;
  }
  for (std::size_t k = 0; k < stages; ++k) {
    partition.stages.push_back(*choices.best(k, layers[k]));
    partition.way_seconds += seconds[k];
    if (stages > 1) {
      partition.way_seconds += request.cluster.link_after(k).latency_seconds;
    }
  }
  return partition;
}

}  // namespace stagecoach::plan
