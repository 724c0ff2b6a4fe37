#include "offload/kv_pages.hpp"

#include <utility>

#include "base/error.hpp"

namespace stagecoach::offload {
namespace {

/// 0 is the last, and so the first to be taken.
std::vector<std::int64_t> countdown(std::int64_t count) {
  std::vector<std::int64_t> numbers;
  numbers.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = count; i > 0; --i) {
    numbers.push_back(i - 1);
  }
  return numbers;
}

std::int64_t take(std::vector<std::int64_t>& free) {
  const auto slot = free.back();
  free.pop_back();
  return slot;
}

}  // namespace

KvPages::KvPages(const TierCounts& pools, const TierShares& shares, std::int64_t open_slots,
                 std::int64_t page_tokens, std::int64_t places)
    : pools_(pools),
      shares_(shares),
      open_slots_(open_slots),
      page_tokens_(page_tokens),
      free_device_(countdown(pools.device)),
      free_cpu_(countdown(pools.cpu)),
      free_disk_(countdown(pools.disk)),
      free_open_(countdown(open_slots)),
      tables_(static_cast<std::size_t>(places)) {}

std::vector<std::int64_t>& KvPages::free_of(Tier tier) {
  return tier == Tier::device ? free_device_ : tier == Tier::cpu ? free_cpu_ : free_disk_;
}

const std::vector<std::int64_t>& KvPages::free_of(Tier tier) const {
  return tier == Tier::device ? free_device_ : tier == Tier::cpu ? free_cpu_ : free_disk_;
}

Tier KvPages::choose_tier() const {
  const auto live = static_cast<double>(live_.total() + 1);
  auto best = Tier::device;
  double best_lag = 0;
  bool found = false;
  for (const auto tier : kTiers) {
    const double lag = shares_.of(tier) * live - static_cast<double>(live_.of(tier));
    if (!free_of(tier).empty() && (!found || lag > best_lag)) {
      best = tier;
      best_lag = lag;
      found = true;
    }
  }
  STAGECOACH_CHECK(found, "KV pages ran out: {} live", live_.total());
  return best;
}

KvPages::Page KvPages::allocate() {
  const auto tier = choose_tier();
  live_.of(tier) += 1;
  return {.tier = tier, .slot = take(free_of(tier))};
}

std::vector<PageUse> KvPages::extend(std::int64_t place, std::int64_t stored_tokens,
                                     std::int64_t new_tokens) {
  auto& table = tables_.at(static_cast<std::size_t>(place));
  const auto tokens = stored_tokens + new_tokens;
  const auto wanted = static_cast<std::size_t>(pages_for(tokens, page_tokens_));
  while (table.size() < wanted) {
    table.push_back(allocate());
  }
  std::vector<PageUse> uses;
  uses.reserve(table.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    auto& page = table[i];
    const auto begin = static_cast<std::int64_t>(i) * page_tokens_;
    PageUse use{.tier = page.tier, .slot = page.slot};
    use.has_old = stored_tokens > begin;
    use.has_new = tokens > begin && stored_tokens < begin + page_tokens_;
    use.fills = page.tier == Tier::disk && use.has_new && tokens >= begin + page_tokens_;
    if (page.tier == Tier::disk && use.has_new && !use.has_old && !use.fills) {
      STAGECOACH_CHECK(!free_open_.empty(), "no memory for a disk page that is being filled");
      page.open_slot = take(free_open_);
    }
    use.open_slot = page.open_slot;
    if (use.fills && page.open_slot >= 0) {
      filled_open_.push_back(std::exchange(page.open_slot, -1));
    }
    uses.push_back(use);
  }
  return uses;
}

void KvPages::end_visit() {
  free_open_.insert(free_open_.end(), filled_open_.rbegin(), filled_open_.rend());
  filled_open_.clear();
}

void KvPages::release(std::int64_t place) {
  auto& table = tables_.at(static_cast<std::size_t>(place));
  for (auto page = table.rbegin(); page != table.rend(); ++page) {
    free_of(page->tier).push_back(page->slot);
    live_.of(page->tier) -= 1;
    if (page->open_slot >= 0) {
      free_open_.push_back(page->open_slot);
    }
  }
  table.clear();
}

std::int64_t KvPages::open_pages() const {
  return open_slots_ - static_cast<std::int64_t>(free_open_.size());
}

}  // namespace stagecoach::offload
