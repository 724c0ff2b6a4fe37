#include "plan/linearize.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include "offload/kv_pages.hpp"
#include "plan/stage_estimate.hpp"

namespace stagecoach::plan {
namespace {

using Point = std::array<double, 3>;  ///< shares on device, CPU and disk

/// Where a plan is only looked at, everything fits.
constexpr std::size_t kLots = std::numeric_limits<std::size_t>::max() / 4;

Fractions with(Fractions fractions, const Point& weights, const Point& cache) {
  fractions.weights = weights;
  fractions.cache = cache;
  return fractions;
}

Fractions resident(const TiersInUse& tiers) {
  Fractions fractions;
  if (tiers.hidden_cpu || tiers.hidden_disk) {
    fractions.hidden = tiers.hidden_disk ? Point{0, 0, 1} : Point{0, 1, 0};
  }
  return fractions;
}

/// The stage's plan and report with this placement, budgets aside.
stage::PlannedStage place(const StageCase& stage, const Fractions& fractions) {
  auto policy = stage.policy;
  policy.percent = {.weights_device = 100 * fractions.weights[0],
                    .weights_cpu = 100 * fractions.weights[1],
                    .cache_device = 100 * fractions.cache[0],
                    .cache_cpu = 100 * fractions.cache[1],
                    .hidden_device = 100 * fractions.hidden[0],
                    .hidden_cpu = 100 * fractions.hidden[1]};
  if (policy.weight_buffers == 0) {
    policy.weight_buffers = 2;  // what the stage has unless there is room for one more
  }
  const auto scratch = scratch_for(stage.profile, stage.shape, stage.demand.longest_pages);
  auto budgets = budgets_for(stage.profile, stage.policy);
  budgets.device = budgets.cpu = budgets.disk = kLots;
  budgets.together = 0;
  budgets.pinned -= std::min(budgets.pinned, scratch.device_in_dram);
  return stage::plan_stage(stage.shape, policy, stage.options, stage.demand, budgets, scratch);
}

std::array<double, 3> bytes_at(const StageCase& stage, const Fractions& fractions) {
  const auto memory = place(stage, fractions).memory;
  std::array<double, 3> bytes{};
  for (const auto tier : offload::kTiers) {
    bytes[static_cast<std::size_t>(tier)] = static_cast<double>(memory.total_bytes(tier));
  }
  return bytes;
}

/// Part of a range, from its low end.
double within(const Range& range, double part) {
  return range.low + part * (range.high - range.low);
}

constexpr double kNear = 0.1;
constexpr double kFar = 0.9;

/// Points of a kind's shares by which a linear function is known: one a tier that is in use.
std::vector<Point> probes(bool cpu, bool disk, const Range& outside, const Range& on_disk) {
  const auto point = [](double out, double disk_share) {
    return Point{1 - out, out - disk_share, disk_share};
  };
  if (!cpu && !disk) {
    return {Point{1, 0, 0}};
  }
  if (!cpu || !disk) {
    const Range range{std::max(outside.low, cpu ? 0.0 : on_disk.low),
                      cpu ? outside.high : std::min(outside.high, on_disk.high)};
    const auto near = within(range, kNear);
    const auto far = within(range, kFar);
    return {point(near, cpu ? 0 : near), point(far, cpu ? 0 : far)};
  }
  const auto out = within(outside, kFar);
  const Range below{on_disk.low, std::min(on_disk.high, out)};
  const auto little = within(below, kNear);
  const Range left{std::max(outside.low, little), out};
  return {point(out, little), point(out, within(below, kFar)), point(within(left, kNear), little)};
}

/// Coefficients of constant, device and disk from the values at the probes, added to `linear`; the
/// value of the first one counts as told elsewhere.
void add_differences(LinearStage::Linear& linear, std::size_t first_column,
                     const std::vector<Point>& points, const std::vector<double>& values) {
  double of_device = 0;
  double of_disk = 0;
  if (points.size() == 2) {
    of_device = (values[1] - values[0]) / (points[1][0] - points[0][0]);
  } else if (points.size() == 3) {
    of_disk = (values[1] - values[0]) / (points[1][2] - points[0][2]);
    of_device = (values[2] - values[0]) / (points[2][0] - points[0][0]);
  }
  linear.by_fraction[first_column] += of_device;
  linear.by_fraction[first_column + 2] += of_disk;
  linear.constant -= of_device * points[0][0] + of_disk * points[0][2];
}

void fill_kind(LinearStage& linear, const StageCase& stage, const Fractions& base,
               const std::array<double, 3>& base_bytes, bool cache,
               const std::vector<Point>& points) {
  std::vector<std::array<double, 3>> bytes{base_bytes};
  for (std::size_t i = 1; i < points.size(); ++i) {
    bytes.push_back(bytes_at(
        stage, with(base, cache ? base.weights : points[i], cache ? points[i] : base.cache)));
  }
  for (std::size_t tier = 0; tier < 3; ++tier) {
    std::vector<double> values;
    for (const auto& at : bytes) {
      values.push_back(at[tier]);
    }
    add_differences(linear.memory_bytes[tier], cache ? 3 : 0, points, values);
  }
}

/// Ranges between 0 and 1 that these shares cut.
std::vector<Range> ranges(std::vector<double> cuts) {
  cuts.push_back(0);
  cuts.push_back(1);
  std::sort(cuts.begin(), cuts.end());
  std::vector<Range> ranges;
  constexpr double kNarrow = 1e-6;
  for (std::size_t i = 0; i + 1 < cuts.size() && cuts[i + 1] <= 1; ++i) {
    if (cuts[i + 1] - cuts[i] > kNarrow) {
      ranges.push_back({cuts[i], cuts[i + 1]});
    }
  }
  return ranges;
}

/// The least numbers of pages outside the device, or on disk, for which a buffer is full.
struct BufferPages {
  std::vector<double> outside;
  std::vector<double> disk;
};

BufferPages buffer_shares(const StageCase& stage) {
  const auto& batch = stage.shape.batch;
  const auto wanted = static_cast<double>(stage.demand.wanted_pages);
  const auto of_a_batch =
      static_cast<double>(batch.gpu_batch_size * stage.demand.longest_pages) / wanted;
  const auto open =
      static_cast<double>(offload::KvPages::open_slots_for(batch.places(), batch.block())) / wanted;
  const auto whole_pages = batch.max_batch_rows() / batch.page_tokens;
  const auto passing = static_cast<double>(whole_pages) / wanted;
  return {{of_a_batch}, {of_a_batch, open, passing}};
}

struct CacheRegime {
  bool cpu = false;
  bool disk = false;
  Range outside{0, 1};
  Range on_disk{0, 1};
};

std::vector<CacheRegime> cache_regimes(const StageCase& stage, const TiersInUse& tiers) {
  const auto shares = buffer_shares(stage);
  std::vector<CacheRegime> regimes{{}};
  if (tiers.cache_cpu) {
    for (const auto& outside : ranges(shares.outside)) {
      regimes.push_back({true, false, outside, {0, 1}});
    }
  }
  if (!tiers.cache_disk) {
    return regimes;
  }
  for (const auto& on_disk : ranges(shares.disk)) {
    if (!tiers.cache_cpu) {
      regimes.push_back({false, true, on_disk, on_disk});
      continue;
    }
    for (const auto& outside : ranges(shares.outside)) {
      if (on_disk.low < outside.high) {
        regimes.push_back({true, true, outside, on_disk});
      }
    }
  }
  return regimes;
}

// Visits ------------------------------------------------------------------------------------------

/// A visit like the steady one; without positions: what brings its sequences there.
stage::Visit make_visit(const StageCase& stage, const SteadyVisit& steady, bool earlier) {
  stage::Visit visit;
  visit.number = earlier ? 0 : 1;
  const bool sparse = stage.shape.batch.attention_sparsity < 1;
  const auto add = [&](std::int64_t position, std::int64_t rows, bool decodes) {
    const auto slot = static_cast<std::int32_t>(visit.entries.size());
    stage::VisitEntry entry;
    entry.slot = slot;
    entry.first_position = static_cast<std::int32_t>(earlier ? 0 : position);
    entry.tokens.resize(static_cast<std::size_t>(earlier ? position : rows));
    entry.next_prompt_token = earlier ? 0 : -1;
    entry.sparse = sparse && decodes && !earlier;
    visit.entries.push_back(std::move(entry));
  };
  for (std::int64_t i = 0; i < steady.decoding; ++i) {
    add(steady.decode_position, 1, true);
  }
  for (std::int64_t i = 0; steady.prompt_rows > 0 && i < steady.prompts; ++i) {
    const auto rows =
        steady.prompt_rows * (i + 1) / steady.prompts - steady.prompt_rows * i / steady.prompts;
    add(steady.prompt_position, rows, false);
  }
  if (earlier) {
    std::erase_if(visit.entries, [](const auto& entry) { return entry.tokens.empty(); });
  }
  return visit;
}

bool moves_weights(stage::StepKind kind) {
  using stage::StepKind;
  return kind == StepKind::load_weights || kind == StepKind::read_weights ||
         kind == StepKind::stage_weights;
}

}  // namespace

namespace {

std::vector<Regime> combine(const TiersInUse& tiers, const std::vector<CacheRegime>& caches) {
  std::vector<std::pair<bool, bool>> weights{{false, false}};
  if (tiers.weights_cpu) {
    weights.emplace_back(true, false);
  }
  if (tiers.weights_disk) {
    weights.emplace_back(tiers.weights_cpu, true);
  }
  std::vector<Regime> regimes;
  for (const auto& cache : caches) {
    for (const auto& [cpu, disk] : weights) {
      Regime regime{.tiers = tiers, .cache_outside = cache.outside, .cache_disk = cache.on_disk};
      regime.tiers.weights_cpu = cpu;
      regime.tiers.weights_disk = disk;
      regime.tiers.cache_cpu = cache.cpu;
      regime.tiers.cache_disk = cache.disk;
      regimes.push_back(regime);
    }
  }
  return regimes;
}

}  // namespace

std::vector<Regime> regimes_of(const StageCase& stage, const TiersInUse& tiers) {
  return combine(tiers, cache_regimes(stage, tiers));
}

std::vector<Regime> rough_regimes_of(const StageCase& stage, const TiersInUse& tiers) {
  const auto caches = cache_regimes(stage, tiers);
  std::vector<CacheRegime> rough;
  for (std::size_t i = 0; i < caches.size(); ++i) {
    const bool last = i + 1 == caches.size() || caches[i + 1].cpu != caches[i].cpu ||
                      caches[i + 1].disk != caches[i].disk;
    if (last) {
      rough.push_back(caches[i]);
    }
  }
  return combine(tiers, rough);
}

namespace {

/// Of a send of hidden states or tokens.
double wire_seconds(const stage::Step& step, const CostModel& model, const LinkRates& link) {
  if (step.kind != stage::StepKind::send_hidden || link.bytes_per_second <= 0) {
    return 0;
  }
  return link.latency_seconds + model.wire_bytes(step.rows) / link.bytes_per_second;
}

/// Steps of a GPU batch that wait for each other, layer by layer: beside weights and pages, which
/// are loaded ahead. One other batch can fill the gaps, but there must be one.
bool in_chain(const stage::Step& step) {
  using stage::StepKind;
  return step.resource == stage::Resource::compute || step.kind == StepKind::save_rows ||
         step.kind == StepKind::attend_cpu || step.kind == StepKind::load_partials ||
         step.kind == StepKind::load_hidden || step.kind == StepKind::store_hidden ||
         step.kind == StepKind::read_hidden || step.kind == StepKind::write_hidden ||
         step.kind == StepKind::save_scores;
}

/// Calls `add` with each time that a step takes: of its resource, and of pools at their capacity.
void for_times(const stage::Step& step, const std::vector<BatchLoad>& loads, const StageCase& stage,
               const CostModel& model, const std::function<void(std::size_t, double)>& add) {
  const auto resource = static_cast<std::size_t>(step.resource);
  if (step.resource == stage::Resource::send || step.resource == stage::Resource::receive) {
    add(resource, wire_seconds(step, model, stage.link));
    return;
  }
  const auto capacity = model.capacity();
  const auto cost = model.of(step, loads);
  add(resource, cost.seconds);
  const bool waited_for = stage.policy.weight_buffers == 1 && moves_weights(step.kind);
  if (waited_for) {  // with one buffer nothing is loaded ahead
    add(stage::kResources + kPools, cost.seconds);
  } else if (in_chain(step)) {
    add(stage::kResources + kPools,
        cost.seconds / static_cast<double>(std::min<std::size_t>(loads.size(), stage::kTurns)));
  }
  for (std::size_t pool = 0; pool < kPools; ++pool) {
    if (capacity[pool] > 0 && cost.draws[pool] > 0) {
      const bool own = pool == static_cast<std::size_t>(Pool::bus);
      const auto sharers = own ? 1.0 : static_cast<double>(stage.profile.stages);
      add(stage::kResources + pool, sharers * cost.seconds * cost.draws[pool] / capacity[pool]);
    }
  }
}

}  // namespace

/// Of a stage with `layers` layers: all of it, and what of it layers in between take.
VisitSeconds::Costs VisitSeconds::costs_at(const StageCase& stage, const Fractions& fractions,
                                           std::int64_t layers) {
  auto few = stage;
  few.shape.contents.layers = layers;
  const auto plan = place(few, fractions).plan;
  const CostModel model(stage.profile, plan);
  Costs costs;
  for (const auto& steady : stage.visits) {
    stage::Scheduler scheduler(plan);
    static_cast<void>(scheduler.next(make_visit(few, steady, true)));
    const auto visit = make_visit(few, steady, false);
    const auto schedule = scheduler.next(visit);
    const auto loads = loads_of(visit, schedule, plan);
    for (const auto& step : schedule.steps) {
      for_times(step, loads, stage, model, [&](std::size_t what, double seconds) {
        costs.all[what] += steady.share * seconds;
        if (moves_weights(step.kind)) {
          costs.layer[what] += steady.share * seconds / static_cast<double>(layers);
        } else if (step.layer == 1) {
          costs.layer[what] += steady.share * seconds;
        }
      });
    }
  }
  return costs;
}

/// What lies elsewhere than on the device costs the same in each layer: one layer tells.
VisitSeconds::VisitSeconds(const StageCase& stage, const TiersInUse& tiers) {
  constexpr std::int64_t kFirstMiddleLast = 3;
  const auto base = resident(tiers);
  const auto three = costs_at(stage, base, kFirstMiddleLast);
  layer_ = three.layer;
  for (std::size_t i = 0; i < kTimes; ++i) {
    once_[i] = three.all[i] - kFirstMiddleLast * three.layer[i];
  }
  const auto one = costs_at(stage, base, 1);
  const auto beyond = [&](std::size_t column, bool used) {
    if (!used) {
      return;
    }
    auto fractions = base;
    auto& kind = column < 3 ? fractions.weights : fractions.cache;
    kind = {};
    kind[column % 3] = 1;
    const auto there = costs_at(stage, fractions, 1);
    for (std::size_t i = 0; i < kTimes; ++i) {
      beyond_[column][i] = there.all[i] - one.all[i];
    }
  };
  beyond(1, tiers.weights_cpu);
  beyond(2, tiers.weights_disk);
  beyond(4, tiers.cache_cpu);
  beyond(5, tiers.cache_disk);
}

void VisitSeconds::fill(LinearStage& stage, std::int64_t layers) const {
  const auto count = static_cast<double>(layers);
  for (std::size_t i = 0; i < kTimes; ++i) {
    LinearStage::Linear linear{.constant = layer_[i] * count + once_[i]};
    for (std::size_t column = 0; column < beyond_.size(); ++column) {
      linear.by_fraction[column] = beyond_[column][i] * count;
    }
    auto& to = i < stage::kResources            ? stage.seconds[i]
               : i < stage::kResources + kPools ? stage.pools[i - stage::kResources]
                                                : stage.chain;
    to = linear;
  }
}

void fill_memory(LinearStage& linear, const StageCase& stage, const Regime& regime) {
  const auto& tiers = regime.tiers;
  const auto weights = probes(tiers.weights_cpu, tiers.weights_disk, {0, 1}, {0, 1});
  const auto cache =
      probes(tiers.cache_cpu, tiers.cache_disk, regime.cache_outside, regime.cache_disk);
  const auto base = with(resident(tiers), weights.front(), cache.front());
  const auto bytes = bytes_at(stage, base);
  for (std::size_t tier = 0; tier < 3; ++tier) {
    linear.memory_bytes[tier] = {.constant = bytes[tier]};
  }
  fill_kind(linear, stage, base, bytes, false, weights);
  fill_kind(linear, stage, base, bytes, true, cache);
  linear.budgets = budgets_for(stage.profile, stage.policy);
  linear.overlap = stage.options.overlap;
  linear.regime = regime;
}

LinearStage linearize(const StageCase& stage, const Regime& regime) {
  LinearStage linear;
  fill_memory(linear, stage, regime);
  VisitSeconds(stage, regime.tiers).fill(linear, stage.shape.contents.layers);
  return linear;
}

}  // namespace stagecoach::plan
