#include "plan/stage_program.hpp"

#include <Clp_C_Interface.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "base/error.hpp"

namespace stagecoach::plan {
namespace {

constexpr int kFractions = 9;
constexpr int kTime = kFractions;  ///< the column of the visit's time
constexpr int kColumns = kFractions + 1;
constexpr double kUnbounded = std::numeric_limits<double>::max();
/// How much a second of any resource counts beside one of the visit.
constexpr double kPreference = 1e-4;

/// low <= sum of coefficient * column <= high
struct Row {
  std::array<double, kColumns> coefficients{};
  double low = -kUnbounded;
  double high = kUnbounded;
};

void add(LinearStage::Linear& to, const LinearStage::Linear& what) {
  to.constant += what.constant;
  for (std::size_t i = 0; i < to.by_fraction.size(); ++i) {
    to.by_fraction[i] += what.by_fraction[i];
  }
}

LinearStage::Linear sum_of_seconds(const LinearStage& stage) {
  LinearStage::Linear sum;
  for (const auto& seconds : stage.seconds) {
    add(sum, seconds);
  }
  return sum;
}

/// What the visit's time is not below.
std::vector<LinearStage::Linear> times_of(const LinearStage& stage) {
  std::vector<LinearStage::Linear> times(stage.pools.begin(), stage.pools.end());
  times.push_back(stage.chain);
  if (stage.overlap) {
    times.insert(times.end(), stage.seconds.begin(), stage.seconds.end());
  } else {
    times.push_back(sum_of_seconds(stage));
  }
  return times;
}

struct MemoryLimit {
  LinearStage::Linear bytes;
  double budget = 0;
};

std::vector<MemoryLimit> limits_of(const LinearStage& stage) {
  const auto& budgets = stage.budgets;
  std::vector<MemoryLimit> limits;
  limits.push_back({stage.memory_bytes[0], static_cast<double>(budgets.device)});
  limits.push_back({stage.memory_bytes[1], static_cast<double>(budgets.cpu)});
  limits.push_back(
      {stage.memory_bytes[2], static_cast<double>(std::min(budgets.disk, budgets.disk_free))});
  if (budgets.together > 0) {
    auto dram = stage.memory_bytes[0];
    add(dram, stage.memory_bytes[1]);
    limits.push_back({dram, static_cast<double>(budgets.together)});
  }
  return limits;
}

/// A small program, solved by CLP.
class Program {
 public:
  Program() {
    lower_.fill(0);
    upper_.fill(1);
    upper_[kTime] = kUnbounded;
  }

  void set_bounds(int column, Range range) {
    lower_[static_cast<std::size_t>(column)] = range.low;
    upper_[static_cast<std::size_t>(column)] = range.high;
  }
  void set_cost(int column, double cost) { costs_[static_cast<std::size_t>(column)] = cost; }
  void add(const Row& row) { rows_.push_back(row); }

  [[nodiscard]] std::optional<std::array<double, kColumns>> solve(Clp_Simplex* model) const {
    const auto columns = matrix();
    std::vector<double> low;
    std::vector<double> high;
    for (const auto& row : rows_) {
      low.push_back(row.low);
      high.push_back(row.high);
    }
    Clp_loadProblem(model, kColumns, static_cast<int>(rows_.size()), columns.starts.data(),
                    columns.rows.data(), columns.values.data(), lower_.data(), upper_.data(),
                    costs_.data(), low.data(), high.data());
    Clp_primal(model, 0);
    constexpr int kOptimal = 0;
    if (Clp_status(model) != kOptimal) {
      return std::nullopt;
    }
    std::array<double, kColumns> answer{};
    std::copy_n(Clp_getColSolution(model), kColumns, answer.begin());
    return answer;
  }

 private:
  struct Matrix {
    std::vector<CoinBigIndex> starts{0};
    std::vector<int> rows;
    std::vector<double> values;
  };

  [[nodiscard]] Matrix matrix() const {
    Matrix matrix;
    for (std::size_t column = 0; column < kColumns; ++column) {
      for (std::size_t row = 0; row < rows_.size(); ++row) {
        if (const auto value = rows_[row].coefficients[column]; value != 0) {
          matrix.rows.push_back(static_cast<int>(row));
          matrix.values.push_back(value);
        }
      }
      matrix.starts.push_back(static_cast<CoinBigIndex>(matrix.rows.size()));
    }
    return matrix;
  }

  std::array<double, kColumns> lower_{};
  std::array<double, kColumns> upper_{};
  std::array<double, kColumns> costs_{};
  std::vector<Row> rows_;
};

/// Bounds of each fraction, and the cut of the cache's shares.
void add_regime(Program& program, const Regime& regime) {
  const auto& tiers = regime.tiers;
  const std::array used = {true,
                           tiers.weights_cpu,
                           tiers.weights_disk,
                           true,
                           tiers.cache_cpu,
                           tiers.cache_disk,
                           !tiers.hidden_cpu && !tiers.hidden_disk,
                           tiers.hidden_cpu && !tiers.hidden_disk,
                           tiers.hidden_disk};
  for (int i = 0; i < kFractions; ++i) {
    program.set_bounds(i, {0, used[static_cast<std::size_t>(i)] ? 1.0 : 0.0});
  }
  if (tiers.cache()) {
    constexpr int kCacheDevice = 3;
    program.set_bounds(kCacheDevice, {1 - regime.cache_outside.high, 1 - regime.cache_outside.low});
  }
  if (tiers.cache_disk) {
    constexpr int kCacheDisk = 5;
    program.set_bounds(kCacheDisk, regime.cache_disk);
  }
  for (std::size_t kind = 0; kind < 3; ++kind) {
    Row row{.low = 1, .high = 1};
    std::fill_n(row.coefficients.begin() + static_cast<std::ptrdiff_t>(3 * kind), 3, 1.0);
    program.add(row);
  }
}

/// constant + by_fraction * x, over `unit`.
Row row_of(const LinearStage::Linear& linear, double unit) {
  Row row;
  for (std::size_t i = 0; i < kFractions; ++i) {
    row.coefficients[i] = linear.by_fraction[i] / unit;
  }
  return row;
}

/// Seconds of the slowest resource with everything on the slowest tier: what time is counted in.
double time_unit(const std::vector<LinearStage::Linear>& times) {
  double unit = 0;
  for (const auto& time : times) {
    const auto most = *std::max_element(time.by_fraction.begin(), time.by_fraction.end());
    unit = std::max({unit, time.constant + std::max(most, 0.0)});
  }
  return unit > 0 ? unit : 1;
}

void clean(std::array<double, 3>& fractions) {
  double sum = 0;
  for (auto& fraction : fractions) {
    fraction = std::clamp(fraction, 0.0, 1.0);
    sum += fraction;
  }
  for (auto& fraction : fractions) {
    fraction /= sum;
  }
}

/// A pair to a thousandth of a per cent; the disk gets the rest, or nothing at all.
void round_pair(const std::array<double, 3>& fractions, double& device, double& cpu) {
  constexpr double kSteps = 1e5;
  const auto steps = [&](double fraction) { return std::round(fraction * kSteps); };
  const auto disk = steps(fractions[2]);
  const auto on_device = std::min(steps(fractions[0]), kSteps - disk);
  device = on_device / 1000;
  cpu = fractions[1] * kSteps < 0.5 && disk > 0 ? 0 : (kSteps - disk - on_device) / 1000;
  if (fractions[1] * kSteps < 0.5 && disk == 0) {
    device = 100;
    cpu = 0;
  }
}

}  // namespace

stage::Percent to_percent(const Fractions& fractions) {
  stage::Percent percent;
  round_pair(fractions.weights, percent.weights_device, percent.weights_cpu);
  round_pair(fractions.cache, percent.cache_device, percent.cache_cpu);
  round_pair(fractions.hidden, percent.hidden_device, percent.hidden_cpu);
  return percent;
}

Fractions to_fractions(const stage::Percent& percent) {
  const auto of = [](const offload::TierShares& shares) {
    return std::array{shares.device, shares.cpu, std::max(0.0, shares.disk())};
  };
  return {of(percent.weights()), of(percent.cache()), of(percent.hidden())};
}

double LinearStage::Linear::at(const Fractions& fractions) const {
  double value = constant;
  for (std::size_t i = 0; i < 3; ++i) {
    value += by_fraction[i] * fractions.weights[i] + by_fraction[3 + i] * fractions.cache[i] +
             by_fraction[6 + i] * fractions.hidden[i];
  }
  return value;
}

double LinearStage::visit_seconds(const Fractions& fractions) const {
  double most = 0;
  for (const auto& time : times_of(*this)) {
    most = std::max(most, time.at(fractions));
  }
  return most;
}

bool LinearStage::fits(const Fractions& fractions) const {
  const auto limits = limits_of(*this);
  return std::all_of(limits.begin(), limits.end(), [&](const MemoryLimit& limit) {
    return limit.bytes.at(fractions) <= limit.budget;
  });
}

struct Solver::Model {
  Model() : clp(Clp_newModel(), &Clp_deleteModel) { Clp_setLogLevel(clp.get(), 0); }
  std::unique_ptr<Clp_Simplex, decltype(&Clp_deleteModel)> clp;
};

Solver::Solver() : model_(std::make_unique<Model>()) {}
Solver::~Solver() = default;

bool LinearStage::may_fit() const {
  const auto limits = limits_of(*this);
  return std::all_of(limits.begin(), limits.end(), [](const MemoryLimit& limit) {
    auto least = limit.bytes.constant;
    for (std::size_t kind = 0; kind < 3; ++kind) {
      const auto* const first = limit.bytes.by_fraction.data() + 3 * kind;
      least += *std::min_element(first, first + 3);
    }
    return least <= limit.budget;
  });
}

std::optional<ProgramResult> solve(const LinearStage& stage) { return Solver().solve(stage); }

std::optional<ProgramResult> Solver::solve(const LinearStage& stage) {
  Program program;
  add_regime(program, stage.regime);
  const auto times = times_of(stage);
  const auto unit = time_unit(times);
  for (const auto& time : times) {
    auto row = row_of(time, -unit);
    row.coefficients[kTime] = 1;
    row.low = time.constant / unit;
    program.add(row);
  }
  for (const auto& limit : limits_of(stage)) {
    const auto scale = std::max(limit.budget, 1.0);
    auto row = row_of(limit.bytes, scale);
    row.high = (limit.budget - limit.bytes.constant) / scale;
    program.add(row);
  }
  program.set_cost(kTime, 1);
  const auto sum = sum_of_seconds(stage);
  for (int i = 0; i < kFractions; ++i) {
    // Where nothing else speaks for a tier, the faster one.
    const auto seconds = kPreference * sum.by_fraction[static_cast<std::size_t>(i)] / unit;
    program.set_cost(i, seconds + kPreference * kPreference * (i % 3));
  }
  const auto answer = program.solve(model_->clp.get());
  if (!answer) {
    return std::nullopt;
  }
  ProgramResult result;
  std::copy_n(answer->begin(), 3, result.fractions.weights.begin());
  std::copy_n(answer->begin() + 3, 3, result.fractions.cache.begin());
  std::copy_n(answer->begin() + 6, 3, result.fractions.hidden.begin());
  clean(result.fractions.weights);
  clean(result.fractions.cache);
  clean(result.fractions.hidden);
  result.visit_seconds = stage.visit_seconds(result.fractions);
  return result;
}

}  // namespace stagecoach::plan
