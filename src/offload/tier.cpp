#include "offload/tier.hpp"

#include <cmath>

namespace stagecoach::offload {
namespace {

// Shares come from percentages: what is smaller than this is a rounding error of 100 - a - b.
constexpr double kNothing = 1e-9;

}  // namespace

TierCounts split_by_shares(std::int64_t total, const TierShares& shares) {
  TierCounts counts;
  double wanted = 0;
  std::int64_t given = 0;
  Tier last = Tier::device;
  for (const auto tier : kTiers) {
    if (shares.of(tier) > kNothing) {
      wanted += shares.of(tier) * static_cast<double>(total);
      counts.of(tier) = std::llround(wanted) - given;
      given += counts.of(tier);
      last = tier;
    }
  }
  counts.of(last) += total - given;
  return counts;
}

}  // namespace stagecoach::offload
