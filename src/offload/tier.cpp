#include "offload/tier.hpp"

#include <algorithm>
#include <cmath>

namespace stagecoach::offload {
namespace {

// Shares come from percentages: what is smaller than this is a rounding error of 100 - a - b.
constexpr double kNothing = 1e-9;

}  // namespace

// Webster's method of apportionment, begun at the whole parts of the shares. With sums rounded one
// after the other, or largest remainders, more things could mean fewer for the tier in the middle.
TierCounts split_by_shares(std::int64_t total, const TierShares& shares) {
  TierCounts counts;
  for (const auto tier : kTiers) {
    if (shares.of(tier) > kNothing) {
      counts.of(tier) =
          static_cast<std::int64_t>(std::floor(shares.of(tier) * static_cast<double>(total)));
    }
  }
  const auto claim = [&](Tier tier) {
    return shares.of(tier) > kNothing
               ? shares.of(tier) / (2 * static_cast<double>(counts.of(tier)) + 1)
               : 0;
  };
  while (counts.total() < total) {
    counts.of(*std::max_element(kTiers.begin(), kTiers.end(),
                                [&](Tier a, Tier b) { return claim(a) < claim(b); })) += 1;
  }
  return counts;
}

}  // namespace stagecoach::offload
