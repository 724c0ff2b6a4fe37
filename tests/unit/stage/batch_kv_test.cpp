#include "stage/batch_kv.hpp"

#include <gtest/gtest.h>

#include <random>

#include "stage/stage_plan.hpp"

namespace stagecoach::stage {
namespace {

using offload::PageUse;
using offload::Tier;

constexpr std::int64_t kTokens = 16;

PageUse on_device() { return {.tier = Tier::device, .slot = 3, .has_old = true}; }
PageUse on_cpu() { return {.tier = Tier::cpu, .slot = 4, .has_old = true}; }
PageUse on_disk() { return {.tier = Tier::disk, .slot = 5, .has_old = true}; }
PageUse open() {
  return {.tier = Tier::disk, .slot = 6, .open_slot = 1, .has_old = true, .has_new = true};
}
PageUse passing() { return {.tier = Tier::disk, .slot = 7, .has_new = true, .fills = true}; }

/// The only page of the only sequence.
PagePlace place_one(const PageUse& use, std::int64_t rows, bool cpu_attention, bool direct) {
  return place_pages({{{use}, rows}}, cpu_attention, direct).sequences.at(0).pages.at(0);
}

TEST(BatchKv, PagesOnTheDeviceTakeNoPlace) {
  const auto batch = place_pages({{{on_device(), on_device()}, 1}}, true, false);
  EXPECT_FALSE(batch.offloaded());
  EXPECT_EQ(batch.staged + batch.loads + batch.partials + batch.stores, 0);
  const auto& page = batch.sequences[0].pages[0];
  EXPECT_TRUE(page.on_device());
  EXPECT_TRUE(page.staged < 0 && page.cpu_staged < 0 && page.passing < 0 && page.partial < 0);
}

TEST(BatchKv, WithoutCpuAttentionPagesAreStagedOnTheDevice) {
  const auto batch = place_pages({{{on_device(), on_cpu(), on_cpu()}, 1}}, false, true);
  EXPECT_EQ(batch.staged, 2);
  EXPECT_EQ(batch.loads, 2);
  EXPECT_EQ(batch.partials, 0);
  EXPECT_EQ(batch.sequences[0].pages[1].staged, 0);
  EXPECT_EQ(batch.sequences[0].pages[2].staged, 1);
  EXPECT_FALSE(batch.sequences[0].cpu_attends);
}

TEST(BatchKv, WithCpuAttentionPagesOfOneRowStayWhereTheyAre) {
  const auto batch = place_pages({{{on_device(), on_cpu(), open()}, 1}}, true, true);
  EXPECT_TRUE(batch.sequences[0].cpu_attends);
  EXPECT_EQ(batch.staged, 0);
  EXPECT_EQ(batch.loads, 0);
  EXPECT_EQ(batch.partials, 2);
  EXPECT_EQ(batch.attended_by_cpu, 2);
}

TEST(BatchKv, SequencesOfSeveralRowsAreAttendedToOnTheDevice) {
  const auto batch = place_pages({{{on_cpu()}, 1}, {{on_cpu()}, 5}}, true, true);
  EXPECT_TRUE(batch.sequences[0].cpu_attends);
  EXPECT_FALSE(batch.sequences[1].cpu_attends);
  EXPECT_EQ(batch.partials, 1);
  EXPECT_EQ(batch.staged, 1);
}

TEST(BatchKv, DiskPagesGoStraightToADeviceThatDisksReach) {
  const auto batch = place_pages({{{on_disk()}, 1}}, false, true);
  EXPECT_EQ(batch.reads, 1);
  EXPECT_EQ(batch.cpu_staged, 0);
  EXPECT_EQ(batch.staged, 1);
  EXPECT_EQ(batch.loads, 0);
}

TEST(BatchKv, ElseDiskPagesPassThroughDram) {
  const auto batch = place_pages({{{on_disk()}, 1}}, false, false);
  EXPECT_EQ(batch.reads, 1);
  EXPECT_EQ(batch.cpu_staged, 1);
  EXPECT_EQ(batch.loads, 1);
}

TEST(BatchKv, TheCpuAttendsToDiskPagesInDram) {
  for (const bool direct : {true, false}) {
    const auto page = place_one(on_disk(), 1, true, direct);
    EXPECT_EQ(page.cpu_staged, 0);
    EXPECT_EQ(page.partial, 0);
    EXPECT_EQ(page.staged, -1);
  }
}

TEST(BatchKv, OpenPagesAreInDramAlready) {
  const auto batch = place_pages({{{open()}, 2}}, false, false);
  EXPECT_EQ(batch.reads, 0);
  EXPECT_EQ(batch.cpu_staged, 0);
  EXPECT_EQ(batch.loads, 1);
  EXPECT_EQ(batch.stores, 1);
  EXPECT_EQ(batch.writes, 0);
}

TEST(BatchKv, PassingPagesAreWrittenAndNeedNoLoad) {
  const auto batch = place_pages({{{passing(), passing()}, 32}}, false, true);
  EXPECT_EQ(batch.passing, 2);
  EXPECT_EQ(batch.writes, 2);
  EXPECT_EQ(batch.stores, 2);
  EXPECT_EQ(batch.staged, 2);
  EXPECT_EQ(batch.loads, 0) << "they have no old tokens";
  EXPECT_EQ(batch.sequences[0].pages[1].passing, 1);
}

TEST(BatchKv, SparseSequencesOfOneRowAreSplitWhereSomePageIsOutsideTheDevice) {
  const auto batch = place_pages({{{on_device(), on_device()}, 1, true},
                                  {{on_device(), on_cpu()}, 1, true},
                                  {{on_cpu()}, 5, true},
                                  {{on_cpu()}, 1, false},
                                  {{on_disk()}, 1, true}},
                                 false, true);
  EXPECT_EQ(batch.splits, 2);
  EXPECT_EQ(batch.sequences[0].split, -1) << "every page is on the device";
  EXPECT_EQ(batch.sequences[1].split, 0);
  EXPECT_EQ(batch.sequences[2].split, -1) << "each row selects for itself, on the device";
  EXPECT_EQ(batch.sequences[3].split, -1) << "dense";
  EXPECT_EQ(batch.sequences[4].split, 1);
  EXPECT_TRUE(batch.asks_cpu());
}

TEST(BatchKv, OfASplitSequenceKeysAloneAreLoadedFromDram) {
  const auto batch = place_pages(
      {{{on_device(), on_cpu(), on_disk()}, 1, true}, {{on_cpu()}, 1, false}}, false, true);
  EXPECT_EQ(batch.key_loads, 1);
  EXPECT_EQ(batch.loads, 1) << "of the dense sequence";
  EXPECT_TRUE(batch.sequences[0].pages[1].keys_only);
  EXPECT_FALSE(batch.sequences[0].pages[2].keys_only) << "a disk page comes whole";
  EXPECT_FALSE(batch.sequences[1].pages[0].keys_only);
  const auto staged = place_pages({{{on_disk()}, 1, true}}, false, false);
  EXPECT_TRUE(staged.sequences[0].pages[0].keys_only) << "it passes through DRAM";
}

TEST(BatchKv, WhereTheCpuAttendsASplitSequenceLoadsNothing) {
  const auto batch = place_pages({{{on_device(), on_cpu()}, 1, true}}, true, true);
  EXPECT_EQ(batch.splits, 1);
  EXPECT_EQ(batch.partials, 1);
  EXPECT_EQ(batch.loads + batch.key_loads + batch.staged, 0);
}

/// A plan's buffers and what batches of random visits take of them.
class RandomBatches {
 public:
  explicit RandomBatches(unsigned seed) : random_(seed) {
    const int device = 10 * pick(0, 9);
    const int cpu = 10 * pick(0, (100 - device) / 10);
    policy_.percent = {100, 0, double(device), double(cpu), 100, 0};
    policy_.cpu_attention = static_cast<Switch>(pick(0, 2));
    options_.direct = pick(0, 1) == 1;
    shape_.batch = {.gpu_batch_size = pick(1, 4), .prefill_piece = pick(1, 100)};
    shape_.batch.attention_sparsity = 0.1;
    shape_.spec.heads = shape_.spec.kv_heads = shape_.spec.head_dim = 4;
    shape_.spec.hidden = 16;
    shape_.spec.ffn = 16;
    shape_.contents.layers = 1;
  }

  void play() {
    constexpr std::int64_t kLongest = 8;
    const auto places = shape_.batch.places();
    const auto plan = make_plan(shape_, policy_, options_, kLongest, places * kLongest, 1);
    offload::KvPages pages(plan.kv.pools, policy_.percent.cache(), plan.kv.open_slots, kTokens,
                           places);
    std::vector<std::int64_t> stored(static_cast<std::size_t>(places), 0);
    for (int visit = 0; visit < 60; ++visit) {
      std::vector<EntryPages> entries;
      auto piece = shape_.batch.prefill_piece;
      for (std::int64_t place = 0; place < places; ++place) {
        auto& tokens = stored[static_cast<std::size_t>(place)];
        const auto room = kLongest * kTokens - tokens;
        if (room == 0 || pick(0, 30) == 0) {
          pages.release(place);
          tokens = 0;
          continue;
        }
        const bool prompt = tokens == 0 && piece > 0;
        const auto fresh = prompt ? pick(1, static_cast<int>(std::min(room, piece))) : 1;
        piece -= prompt ? fresh : 0;
        entries.push_back({pages.extend(place, tokens, fresh), fresh, !prompt});
        tokens += fresh;
      }
      pages.end_visit();
      check(place_pages(entries, plan.cpu_attention, plan.direct), plan);
    }
  }

 private:
  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }

  static void check(const BatchKv& batch, const StagePlan& plan) {
    ASSERT_LE(batch.staged, plan.kv.staged);
    ASSERT_LE(batch.cpu_staged, plan.kv.cpu_staged);
    ASSERT_LE(batch.passing, plan.kv.passing);
    ASSERT_LE(batch.partials, plan.kv.partials);
    ASSERT_LE(batch.splits, plan.kv.splits);
  }

  std::mt19937 random_;
  Policy policy_;
  PlanOptions options_;
  StageShape shape_;
};

TEST(BatchKv, NeverTakesMoreThanThePlanHasRoomFor) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    RandomBatches(seed).play();
    if (HasFailure()) {
      return;
    }
  }
}

}  // namespace
}  // namespace stagecoach::stage
