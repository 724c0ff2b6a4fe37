#pragma once

#include <cstdint>
#include <vector>

#include "offload/tier.hpp"

namespace stagecoach::offload {

/// Pages that hold `tokens` tokens.
constexpr std::int64_t pages_for(std::int64_t tokens, std::int64_t page_tokens) {
  return (tokens + page_tokens - 1) / page_tokens;
}

/// What one visit does with one page of a sequence, the same in every layer. The numbers name
/// places within the pools that each layer has of its own.
struct PageUse {
  Tier tier = Tier::device;  ///< where the page lives once it is full
  std::int64_t slot = -1;    ///< there
  /// A disk page that is not full lies here, in memory; -1: it is not in such a place.
  std::int64_t open_slot = -1;
  bool has_old = false;  ///< holds tokens of earlier visits
  bool has_new = false;  ///< takes tokens of this visit
  bool fills = false;    ///< a disk page whose last token this visit brings: to be written now

  /// A disk page that begins and is full within the visit: it passes through memory of the step.
  [[nodiscard]] bool passes() const { return tier == Tier::disk && has_new && open_slot < 0; }
  /// The page's old tokens must be fetched from disk.
  [[nodiscard]] bool on_disk() const { return tier == Tier::disk && has_old && open_slot < 0; }
  friend bool operator==(const PageUse&, const PageUse&) = default;
};

/// The book of a stage's KV pages: a page is K and V of one sequence in one layer for `page_tokens`
/// tokens. All layers have the same pools and a page number means the same place in each, so one
/// entry stands for a page of every layer. Pure bookkeeping: no memory, no thread.
///
/// New pages go to the tier that lags most behind its share of the live pages, so that shares are
/// met within a page while pages are added. Pools never grow: admission guarantees that a claim is
/// met, so running out is an InternalError.
class KvPages {
 public:
  /// `pools`: pages a layer in each tier. `open_slots`: places for disk pages that are not full.
  KvPages(const TierCounts& pools, const TierShares& shares, std::int64_t open_slots,
          std::int64_t page_tokens, std::int64_t places);

  /// Makes sure that `place` has pages for `new_tokens` after the `stored_tokens` it has, and
  /// returns what the visit that brings them does with each page, in position order.
  std::vector<PageUse> extend(std::int64_t place, std::int64_t stored_tokens,
                              std::int64_t new_tokens);
  /// The visit's last `extend` has been made: places of disk pages that are full now are free for
  /// the next visit.
  void end_visit();
  /// Gives all pages of `place` back.
  void release(std::int64_t place);

  [[nodiscard]] const TierCounts& live() const noexcept { return live_; }
  [[nodiscard]] const TierCounts& pools() const noexcept { return pools_; }
  [[nodiscard]] std::int64_t open_pages() const;

  /// Open slots that never run out: one for each place, and one more for each place of the block
  /// whose visit fills a page and begins the next.
  static std::int64_t open_slots_for(std::int64_t places, std::int64_t block) {
    return places + block;
  }

 private:
  struct Page {
    Tier tier = Tier::device;
    std::int64_t slot = -1;
    std::int64_t open_slot = -1;
  };

  [[nodiscard]] Page allocate();
  [[nodiscard]] Tier choose_tier() const;
  std::vector<std::int64_t>& free_of(Tier tier);
  [[nodiscard]] const std::vector<std::int64_t>& free_of(Tier tier) const;

  TierCounts pools_;
  TierShares shares_;
  std::int64_t open_slots_;
  std::int64_t page_tokens_;
  TierCounts live_;
  std::vector<std::int64_t> free_device_, free_cpu_, free_disk_,
      free_open_;                          ///< last in, first out
  std::vector<std::int64_t> filled_open_;  ///< to be freed at the visit's end
  std::vector<std::vector<Page>> tables_;  ///< a place's pages in position order
};

}  // namespace stagecoach::offload
