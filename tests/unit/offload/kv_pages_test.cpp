#include "offload/kv_pages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "base/error.hpp"

namespace stagecoach::offload {
namespace {

constexpr std::int64_t kTokens = 16;
constexpr TierCounts kPlenty{1000, 1000, 1000};

KvPages on_disk_only(std::int64_t pages, std::int64_t places) {
  return {{0, 0, pages}, {0, 0}, KvPages::open_slots_for(places, places), kTokens, places};
}

TEST(KvPages, RoundsTokensUpToPages) {
  EXPECT_EQ(pages_for(0, 16), 0);
  EXPECT_EQ(pages_for(1, 16), 1);
  EXPECT_EQ(pages_for(16, 16), 1);
  EXPECT_EQ(pages_for(17, 16), 2);
}

TEST(KvPages, PagesStayWhereTheyAreWhileASequenceGrows) {
  KvPages pages({4, 0, 0}, {1, 0}, 0, kTokens, 2);
  const auto first = pages.extend(1, 0, 10).at(0);
  EXPECT_TRUE(first.has_new);
  EXPECT_FALSE(first.has_old);
  const auto same = pages.extend(1, 10, 6);
  ASSERT_EQ(same.size(), 1u);
  EXPECT_TRUE(same[0].has_old && same[0].has_new);
  const auto three = pages.extend(1, 16, 17);
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[0].slot, first.slot);
  EXPECT_TRUE(three[0].has_old);
  EXPECT_FALSE(three[0].has_new);
  EXPECT_EQ(pages.live(), (TierCounts{3, 0, 0}));
}

TEST(KvPages, PagesOnDeviceAndCpuNeedNoOpenSlot) {
  KvPages pages({2, 2, 0}, {0.5, 0.5}, 0, kTokens, 1);
  for (std::int64_t token = 0; token < 4 * kTokens; ++token) {
    for (const auto& use : pages.extend(0, token, 1)) {
      EXPECT_LT(use.open_slot, 0);
      EXPECT_FALSE(use.fills || use.passes() || use.on_disk());
    }
    pages.end_visit();
  }
  EXPECT_EQ(pages.live(), (TierCounts{2, 2, 0}));
}

TEST(KvPages, SharesAreMetWithinAPageWhilePagesAreAdded) {
  for (int device = 0; device <= 100; device += 10) {
    for (int cpu = 0; device + cpu <= 100; cpu += 10) {
      SCOPED_TRACE("device " + std::to_string(device) + " cpu " + std::to_string(cpu));
      const TierShares shares{device / 100.0, cpu / 100.0};
      KvPages pages(kPlenty, shares, 8, kTokens, 4);
      for (std::int64_t page = 0; page < 200; ++page) {
        pages.extend(page % 4, page / 4 * kTokens, kTokens);
        pages.end_visit();
        ASSERT_EQ(pages.live().total(), page + 1);
        for (const auto tier : kTiers) {
          ASSERT_LE(std::abs(static_cast<double>(pages.live().of(tier)) -
                             shares.of(tier) * static_cast<double>(page + 1)),
                    1)
              << to_string(tier) << " after page " << page;
        }
      }
    }
  }
}

TEST(KvPages, FillThePoolsThatAreSplitByTheSameSharesToTheLast) {
  for (int device = 0; device <= 100; device += 10) {
    for (int cpu = 0; device + cpu <= 100; cpu += 10) {
      for (const std::int64_t total : {1, 2, 3, 7, 50}) {
        const TierShares shares{device / 100.0, cpu / 100.0};
        const auto pools = split_by_shares(total, shares);
        KvPages pages(pools, shares, 4, kTokens, 2);
        pages.extend(0, 0, total * kTokens);
        EXPECT_EQ(pages.live(), pools) << device << " " << cpu;
        EXPECT_THROW(pages.extend(1, 0, 1), InternalError);
      }
    }
  }
}

TEST(KvPages, OneSequenceSpansTheTiers) {
  KvPages pages(kPlenty, {0.25, 0.25}, 2, kTokens, 1);
  TierCounts seen;
  for (const auto& use : pages.extend(0, 0, 8 * kTokens)) {
    seen.of(use.tier) += 1;
  }
  EXPECT_EQ(seen, (TierCounts{2, 2, 4}));
}

TEST(KvPages, ADiskPageIsFilledInOneOpenSlotAndThenOnDisk) {
  auto pages = on_disk_only(2, 1);
  const auto first = pages.extend(0, 0, 1).at(0);
  pages.end_visit();
  EXPECT_GE(first.open_slot, 0);
  for (std::int64_t token = 1; token < kTokens; ++token) {
    const auto use = pages.extend(0, token, 1).at(0);
    pages.end_visit();
    EXPECT_EQ(use.open_slot, first.open_slot) << token;
    EXPECT_EQ(use.slot, first.slot);
    EXPECT_EQ(use.fills, token == kTokens - 1) << token;
    EXPECT_FALSE(use.on_disk() || use.passes());
    EXPECT_EQ(pages.open_pages(), token == kTokens - 1 ? 0 : 1);
  }
  const auto both = pages.extend(0, kTokens, 1);
  EXPECT_TRUE(both[0].on_disk());
  EXPECT_FALSE(both[0].has_new || both[0].fills);
  EXPECT_FALSE(both[1].on_disk());
  EXPECT_GE(both[1].open_slot, 0);
}

TEST(KvPages, ADiskPageFilledWithinTheVisitPasses) {
  auto pages = on_disk_only(3, 1);
  const auto uses = pages.extend(0, 0, 2 * kTokens + 1);
  ASSERT_EQ(uses.size(), 3u);
  for (int page = 0; page < 2; ++page) {
    EXPECT_TRUE(uses[static_cast<std::size_t>(page)].passes());
    EXPECT_TRUE(uses[static_cast<std::size_t>(page)].fills);
    EXPECT_FALSE(uses[static_cast<std::size_t>(page)].on_disk());
  }
  EXPECT_FALSE(uses[2].passes());
  EXPECT_GE(uses[2].open_slot, 0);
  EXPECT_EQ(pages.open_pages(), 1);
}

TEST(KvPages, AFilledPagesOpenSlotIsFreeOnlyAfterTheVisit) {
  auto pages = on_disk_only(4, 2);
  const auto slot = pages.extend(0, 0, kTokens - 1).at(0).open_slot;
  pages.end_visit();
  EXPECT_EQ(pages.extend(0, kTokens - 1, 1).at(0).open_slot, slot);
  EXPECT_NE(pages.extend(1, 0, 1).at(0).open_slot, slot) << "it is still being written";
  pages.end_visit();
  EXPECT_EQ(pages.open_pages(), 1);
}

TEST(KvPages, ReleaseGivesEverythingBack) {
  KvPages pages({3, 3, 3}, {0.3, 0.3}, 3, kTokens, 2);
  pages.extend(0, 0, 4 * kTokens + 3);
  pages.extend(1, 0, 3 * kTokens + 3);
  pages.end_visit();
  pages.release(0);
  pages.release(1);
  EXPECT_EQ(pages.live(), TierCounts{});
  EXPECT_EQ(pages.open_pages(), 0);
  EXPECT_EQ(pages.extend(1, 0, 9 * kTokens).size(), 9u);
}

TEST(KvPages, RunningOutIsABrokenPromise) {
  KvPages pages({1, 1, 0}, {0.5, 0.5}, 0, kTokens, 1);
  EXPECT_THROW(pages.extend(0, 0, 2 * kTokens + 1), InternalError);
  KvPages no_open({0, 0, 4}, {0, 0}, 1, kTokens, 2);
  no_open.extend(0, 0, 1);
  EXPECT_THROW(no_open.extend(1, 0, 1), InternalError);
}

/// Random sequences that come, grow and end in random blocks, beside a model that is nothing but
/// what each page was given first and sets of what is taken.
class RandomCache {
 public:
  explicit RandomCache(unsigned seed) : random_(seed) {
    const int device = pick(0, 10);
    shares_ = {device / 10.0, pick(0, 10 - device) / 10.0};
    block_ = pick(1, 5);
    blocks_ = pick(1, 4);
    places_.resize(static_cast<std::size_t>(block_ * blocks_));
    total_ = pick(1, 40);
    pools_ = split_by_shares(total_, shares_);
    const auto places = static_cast<std::int64_t>(places_.size());
    pages_.emplace(pools_, shares_, KvPages::open_slots_for(places, block_), kTokens, places);
  }

  void play() {
    for (int visit = 0; visit < 300 && !::testing::Test::HasFatalFailure(); ++visit) {
      const std::int64_t block = pick(0, static_cast<int>(blocks_) - 1);
      writing_.clear();
      for (std::int64_t slot = 0; slot < block_; ++slot) {
        step(static_cast<std::size_t>(block * block_ + slot));
      }
      pages_->end_visit();
      check_totals();
    }
    for (std::size_t place = 0; place < places_.size(); ++place) {
      end(place);
    }
    EXPECT_EQ(pages_->live(), TierCounts{});
    EXPECT_EQ(pages_->open_pages(), 0);
  }

 private:
  struct Place {
    std::int64_t tokens = 0, most = 0;
    std::vector<std::pair<Tier, std::int64_t>> pages;
    std::int64_t open = -1;
  };

  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }

  void step(std::size_t number) {
    auto& place = places_[number];
    if (place.most > 0 && (place.tokens == place.most || pick(0, 19) == 0)) {
      end(number);
    }
    if (place.most == 0) {
      const std::int64_t most = pick(1, 100);
      if (pick(0, 2) == 0 || claimed_ + pages_for(most, kTokens) > total_) {
        return;
      }
      place.most = most;
      claimed_ += pages_for(most, kTokens);
    }
    const auto left = static_cast<int>(place.most - place.tokens);
    const auto tokens = pick(0, 2) == 0 ? pick(1, left) : 1;
    const auto uses = pages_->extend(static_cast<std::int64_t>(number), place.tokens, tokens);
    check(place, uses, place.tokens, tokens);
    place.tokens += tokens;
  }

  void end(std::size_t number) {
    auto& place = places_[number];
    if (place.most == 0) {
      return;
    }
    for (const auto& page : place.pages) {
      taken_.erase(page);
    }
    open_.erase(place.open);
    claimed_ -= pages_for(place.most, kTokens);
    place = {};
    pages_->release(static_cast<std::int64_t>(number));
  }

  void check(Place& place, const std::vector<PageUse>& uses, std::int64_t old, std::int64_t fresh) {
    ASSERT_EQ(static_cast<std::int64_t>(uses.size()), pages_for(old + fresh, kTokens));
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const auto& use = uses[i];
      const auto begin = static_cast<std::int64_t>(i) * kTokens;
      const auto end = begin + kTokens;
      const std::pair<Tier, std::int64_t> where{use.tier, use.slot};
      if (i == place.pages.size()) {
        ASSERT_TRUE(taken_.insert(where).second) << "handed out twice";
        ASSERT_TRUE(use.slot >= 0 && use.slot < pools_.of(use.tier));
        place.pages.push_back(where);
      }
      ASSERT_EQ(place.pages[i], where);
      ASSERT_EQ(use.has_old, old > begin);
      ASSERT_EQ(use.has_new, old < end && old + fresh > begin);
      const bool disk = use.tier == Tier::disk;
      ASSERT_EQ(use.fills, disk && use.has_new && old + fresh >= end);
      ASSERT_EQ(use.on_disk(), disk && old >= end);
      ASSERT_EQ(use.passes(), disk && old <= begin && old + fresh >= end);
      check_open(place, use, disk && use.has_new && !use.passes());
    }
  }

  void check_open(Place& place, const PageUse& use, bool expected) {
    ASSERT_EQ(use.open_slot >= 0, expected);
    if (!expected) {
      return;
    }
    if (use.has_old) {
      ASSERT_EQ(use.open_slot, place.open) << "an open page moved";
    } else {
      ASSERT_TRUE(open_.insert(use.open_slot).second) << "an open slot handed out twice";
      ASSERT_FALSE(writing_.count(use.open_slot)) << "it is still being written";
      place.open = use.open_slot;
    }
    if (use.fills) {
      open_.erase(use.open_slot);
      writing_.insert(use.open_slot);
      place.open = -1;
    }
  }

  void check_totals() {
    TierCounts live;
    for (const auto& [tier, slot] : taken_) {
      live.of(tier) += 1;
    }
    ASSERT_EQ(pages_->live(), live);
    ASSERT_EQ(pages_->open_pages(), static_cast<std::int64_t>(open_.size()));
  }

  std::mt19937 random_;
  TierShares shares_;
  std::int64_t block_ = 1, blocks_ = 1;
  std::int64_t total_ = 0, claimed_ = 0;
  TierCounts pools_;
  std::optional<KvPages> pages_;
  std::vector<Place> places_;
  std::set<std::pair<Tier, std::int64_t>> taken_;
  std::set<std::int64_t> open_, writing_;
};

TEST(KvPages, NothingIsHandedOutTwiceNorRunsOutOverRandomVisits) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomCache(seed).play();
    if (HasFailure()) {
      return;
    }
  }
}

TEST(KvPages, OpenSlotsAreNotMoreThanTheWorstVisitNeeds) {
  // Every place holds an open page, and a block's visit fills its pages and begins the next ones.
  constexpr std::int64_t kBlock = 3;
  constexpr std::int64_t kPlaces = 2 * kBlock;
  KvPages pages({0, 0, 100}, {0, 0}, KvPages::open_slots_for(kPlaces, kBlock), kTokens, kPlaces);
  for (std::int64_t place = 0; place < kPlaces; ++place) {
    pages.extend(place, 0, kTokens - 1);
  }
  pages.end_visit();
  for (std::int64_t place = 0; place < kBlock; ++place) {
    const auto uses = pages.extend(place, kTokens - 1, 2);
    EXPECT_TRUE(uses[0].fills);
    EXPECT_NE(uses[0].open_slot, uses[1].open_slot);
  }
  EXPECT_EQ(pages.open_pages(), kPlaces + kBlock);
  pages.end_visit();
  EXPECT_EQ(pages.open_pages(), kPlaces);
}

}  // namespace
}  // namespace stagecoach::offload
