#pragma once

#include <array>
#include <cstdint>

namespace stagecoach::offload {

/// Where data lives when nothing computes with it.
enum class Tier { device, cpu, disk };
inline constexpr std::array kTiers = {Tier::device, Tier::cpu, Tier::disk};

constexpr const char* to_string(Tier tier) {
  return tier == Tier::device ? "device" : tier == Tier::cpu ? "cpu" : "disk";
}

/// Parts of a whole, from 0 to 1; the rest is on disk.
struct TierShares {
  double device = 1;
  double cpu = 0;

  [[nodiscard]] double disk() const { return 1 - device - cpu; }
  [[nodiscard]] double of(Tier tier) const {
    return tier == Tier::device ? device : tier == Tier::cpu ? cpu : disk();
  }
};

/// A number for each tier.
struct TierCounts {
  std::int64_t device = 0;
  std::int64_t cpu = 0;
  std::int64_t disk = 0;

  [[nodiscard]] std::int64_t& of(Tier tier) {
    return tier == Tier::device ? device : tier == Tier::cpu ? cpu : disk;
  }
  [[nodiscard]] std::int64_t of(Tier tier) const {
    return tier == Tier::device ? device : tier == Tier::cpu ? cpu : disk;
  }
  [[nodiscard]] std::int64_t total() const { return device + cpu + disk; }
  friend bool operator==(const TierCounts&, const TierCounts&) = default;
};

/// `total` things cut by `shares`: each tier within one of its share, their sum exact, and nothing
/// where the share is zero. With a larger total no tier gets fewer.
TierCounts split_by_shares(std::int64_t total, const TierShares& shares);

}  // namespace stagecoach::offload
