#include "stage/batcher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "base/error.hpp"
#include "offload/kv_pages.hpp"

namespace stagecoach::stage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Prompts of given lengths whose tokens tell sequence and position, and the batcher's inputs.
struct Inputs {
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<SequenceInput> sequences;

  static std::int32_t token(std::size_t sequence, std::size_t position) {
    return static_cast<std::int32_t>(sequence * 1000 + position);
  }

  void add(std::size_t prompt_len, std::int64_t max_new_tokens) {
    prompts.emplace_back();
    for (std::size_t i = 0; i < prompt_len; ++i) {
      prompts.back().push_back(token(prompts.size() - 1, i));
    }
    sequences.push_back({.prompt = {}, .max_new_tokens = max_new_tokens, .sampling = {}});
  }

  Batcher make(const BatchShape& shape, std::int64_t pages) {
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      sequences[i].prompt = prompts[i];
    }
    return {shape, pages, sequences};
  }
};

/// Ends entries as `ends` says; every sampling entry gives token 7.
void finish(Batcher& batcher, const Visit& visit, const std::vector<bool>& ends) {
  std::vector<TokenOutcome> outcomes;
  for (std::size_t i = 0; i < visit.entries.size(); ++i) {
    outcomes.push_back({7, ends.at(i)});
  }
  batcher.complete(visit, outcomes);
}

BatchShape shape_of(std::int64_t gpu_batch, std::int64_t batches, std::int64_t inner,
                    std::int64_t piece) {
  return {.gpu_batch_size = gpu_batch,
          .num_gpu_batches = batches,
          .inner_iterations = inner,
          .prefill_piece = piece};
}

TEST(Batcher, CutsAPromptIntoPiecesThenDecodes) {
  Inputs inputs;
  inputs.add(10, 3);
  auto batcher = inputs.make(shape_of(1, 1, 1, 4), 100);

  const auto first = batcher.next_visit(0).value();
  EXPECT_EQ(first.number, 0);
  ASSERT_EQ(first.entries.size(), 1u);
  EXPECT_THAT(first.entries[0].tokens, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(first.entries[0].next_prompt_token, 4);
  finish(batcher, first, {false});
  const auto second = batcher.next_visit(0).value();
  EXPECT_EQ(second.entries[0].first_position, 4);
  finish(batcher, second, {false});
  const auto third = batcher.next_visit(0).value();
  EXPECT_THAT(third.entries[0].tokens, ElementsAre(8, 9));
  EXPECT_TRUE(third.entries[0].samples());
  finish(batcher, third, {false});
  const auto decode = batcher.next_visit(0).value();
  EXPECT_THAT(decode.entries[0].tokens, ElementsAre(7));
  EXPECT_EQ(decode.entries[0].first_position, 10);
  EXPECT_TRUE(decode.entries[0].samples());
  finish(batcher, decode, {true});
  EXPECT_FALSE(batcher.next_visit(0).has_value());
  EXPECT_TRUE(batcher.done());
}

TEST(Batcher, GivesThePieceToTheOldestPromptFirst) {
  Inputs inputs;
  inputs.add(3, 1);
  inputs.add(5, 1);
  inputs.add(5, 1);
  auto batcher = inputs.make(shape_of(2, 1, 1, 6), 100);
  const auto first = batcher.next_visit(0).value();
  ASSERT_EQ(first.entries.size(), 2u);
  EXPECT_EQ(first.entries[0].tokens.size(), 3u);
  EXPECT_EQ(first.entries[1].tokens.size(), 3u);
  finish(batcher, first, {true, false});
  // Sequence 2 takes slot 0, but sequence 1, in slot 1, came before it.
  const auto second = batcher.next_visit(0).value();
  ASSERT_EQ(second.entries.size(), 2u);
  EXPECT_EQ(batcher.sequence_at(0, 0), 2);
  EXPECT_EQ(second.entries[0].tokens.size(), 4u);
  EXPECT_EQ(second.entries[1].tokens.size(), 2u);
  EXPECT_TRUE(second.entries[1].samples());
}

TEST(Batcher, RefillsAnEndedPlaceAtOnceAndReleasesItsPages) {
  Inputs inputs;
  inputs.add(2, 5);
  inputs.add(2, 5);
  inputs.add(2, 5);
  auto batcher = inputs.make(shape_of(2, 1, 1, 8), 100);
  const auto first = batcher.next_visit(0).value();
  EXPECT_TRUE(first.releases.empty());
  finish(batcher, first, {true, false});
  const auto second = batcher.next_visit(0).value();
  EXPECT_THAT(second.releases, ElementsAre(Release{0, 0}));
  ASSERT_EQ(second.entries.size(), 2u);
  EXPECT_EQ(second.entries[0].first_position, 0);
  EXPECT_THAT(second.entries[0].tokens, ElementsAre(2000, 2001));
  EXPECT_THAT(second.entries[1].tokens, ElementsAre(7));
}

TEST(Batcher, AdmitsOnlyWhatTheUnclaimedPagesHold) {
  Inputs inputs;
  inputs.add(16, 17);  // 32 stored tokens: 2 pages
  inputs.add(16, 17);
  inputs.add(1, 1);  // 1 page, but it must wait its turn
  auto batcher = inputs.make(shape_of(3, 1, 1, 100), 3);
  const auto first = batcher.next_visit(0).value();
  EXPECT_EQ(first.entries.size(), 1u);
  EXPECT_EQ(batcher.claimed_pages(), 2);
  finish(batcher, first, {true});
  EXPECT_EQ(batcher.claimed_pages(), 0);
  const auto second = batcher.next_visit(0).value();
  EXPECT_EQ(second.entries.size(), 2u);
  EXPECT_EQ(batcher.claimed_pages(), 3);
}

TEST(Batcher, RefusesARequestThatNeverFits) {
  Inputs inputs;
  inputs.add(16, 2);
  inputs.add(16, 18);
  try {
    inputs.make(shape_of(1, 1, 1, 8), 2);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("request 2 needs 3 KV pages"));
  }
}

TEST(Batcher, EntriesComeBySlotAndBlocksHaveTheirOwn) {
  Inputs inputs;
  for (int i = 0; i < 6; ++i) {
    inputs.add(2, 2);
  }
  auto batcher = inputs.make(shape_of(1, 2, 3, 100), 100);
  for (std::int32_t block = 0; block < 3; ++block) {
    const auto visit = batcher.next_visit(block).value();
    EXPECT_EQ(visit.block, block);
    EXPECT_EQ(batcher.sequence_at(block, 0), 2 * block);
    EXPECT_EQ(batcher.sequence_at(block, 1), 2 * block + 1);
  }
  EXPECT_EQ(batcher.alive(), 6);
}

TEST(Batcher, SpreadsFewSequencesOverTheBlocks) {
  Inputs inputs;
  for (int i = 0; i < 5; ++i) {
    inputs.add(2, 2);
  }
  auto batcher = inputs.make(shape_of(4, 1, 3, 100), 100);
  std::vector<std::size_t> entries;
  for (std::int32_t block = 0; block < 3; ++block) {
    entries.push_back(batcher.next_visit(block).value().entries.size());
  }
  EXPECT_THAT(entries, ElementsAre(2, 2, 1));
}

BatchShape whole_shape_of(std::int64_t gpu_batch, std::int64_t batches, std::int64_t inner,
                          std::int64_t longest_prompt) {
  auto shape = shape_of(gpu_batch, batches, inner, 1);
  shape.admission = Admission::whole;
  shape.longest_prompt = longest_prompt;
  return shape;
}

TEST(Batcher, WholePromptsComeInTheBlocksFirstVisit) {
  Inputs inputs;
  inputs.add(40, 2);
  inputs.add(7, 2);
  inputs.add(40, 2);
  auto batcher = inputs.make(whole_shape_of(2, 2, 1, 40), 100);
  const auto first = batcher.next_visit(0).value();
  ASSERT_EQ(first.entries.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(first.entries[i].tokens.size(), inputs.prompts[i].size());
    EXPECT_TRUE(first.entries[i].samples());
  }
  finish(batcher, first, {false, false, false});
  EXPECT_EQ(batcher.next_visit(0).value().rows(), 3);
}

TEST(Batcher, AWholeBlockTakesNewSequencesOnlyWhenAllOldOnesHaveEnded) {
  Inputs inputs;
  for (int i = 0; i < 4; ++i) {
    inputs.add(2, 9);
  }
  auto batcher = inputs.make(whole_shape_of(2, 1, 1, 2), 100);
  finish(batcher, batcher.next_visit(0).value(), {true, false});
  const auto second = batcher.next_visit(0).value();
  ASSERT_EQ(second.entries.size(), 1u) << "slot 0 stays empty";
  EXPECT_THAT(second.entries[0].tokens, ElementsAre(7));
  EXPECT_THAT(second.releases, ElementsAre(Release{0, 0}));
  finish(batcher, second, {true});
  const auto third = batcher.next_visit(0).value();
  ASSERT_EQ(third.entries.size(), 2u);
  EXPECT_THAT(third.entries[0].tokens, ElementsAre(2000, 2001));
  EXPECT_THAT(third.entries[1].tokens, ElementsAre(3000, 3001));
}

TEST(Batcher, AWholeBlockDoesNotWaitForOtherBlocks) {
  Inputs inputs;
  for (int i = 0; i < 4; ++i) {
    inputs.add(2, 9);
  }
  auto batcher = inputs.make(whole_shape_of(1, 1, 2, 2), 100);
  const auto one = batcher.next_visit(0).value();
  const auto other = batcher.next_visit(1).value();
  finish(batcher, one, {true});
  EXPECT_EQ(batcher.next_visit(0).value().entries[0].first_position, 0);
  finish(batcher, other, {false});
  EXPECT_EQ(batcher.next_visit(1).value().entries[0].first_position, 2);
}

TEST(Batcher, AWholeBlockTakesNoMoreThanThePagesHold) {
  Inputs inputs;
  inputs.add(16, 17);  // two pages each
  inputs.add(16, 17);
  auto batcher = inputs.make(whole_shape_of(2, 1, 1, 16), 3);
  const auto first = batcher.next_visit(0).value();
  EXPECT_EQ(first.entries.size(), 1u);
  finish(batcher, first, {true});
  EXPECT_EQ(batcher.sequence_at(0, 0), -1);
  EXPECT_EQ(batcher.next_visit(0).value().entries.size(), 1u);
  EXPECT_EQ(batcher.sequence_at(0, 0), 1);
}

TEST(Batcher, AScoredSequenceEndsBeforeItsLastTokenIsFed) {
  Inputs inputs;
  inputs.add(10, 0);
  inputs.add(3, 0);
  inputs.sequences[0].score_from = 7;
  auto batcher = inputs.make(shape_of(1, 1, 1, 5), 100);
  const auto first = batcher.next_visit(0).value();
  EXPECT_THAT(first.entries[0].tokens, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(first.entries[0].score_from, 7);
  finish(batcher, first, {false});
  EXPECT_EQ(batcher.alive(), 1);
  const auto second = batcher.next_visit(0).value();
  EXPECT_THAT(second.entries[0].tokens, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(second.entries[0].next_prompt_token, 9);
  EXPECT_FALSE(second.entries[0].samples());
  finish(batcher, second, {false});
  EXPECT_EQ(batcher.alive(), 0) << "nobody had to end it";
  EXPECT_EQ(batcher.claimed_pages(), 0);
  const auto third = batcher.next_visit(0).value();
  EXPECT_THAT(third.releases, ElementsAre(Release{0, 0}));
  EXPECT_THAT(third.entries[0].tokens, ElementsAre(1000, 1001));
  finish(batcher, third, {false});
  EXPECT_TRUE(batcher.done());
}

TEST(Batcher, AScoredSequenceClaimsNoPageForItsLastToken) {
  Inputs inputs;
  inputs.add(17, 0);
  auto batcher = inputs.make(shape_of(1, 1, 1, 100), 1);
  EXPECT_EQ(batcher.next_visit(0).value().rows(), 16);
  EXPECT_EQ(batcher.claimed_pages(), 1);
}

TEST(Batcher, SparseRowsAreThoseOfScoredSequencesAndOfDecodedTokens) {
  Inputs inputs;
  inputs.add(6, 9);
  inputs.add(6, 0);
  auto shape = shape_of(2, 1, 1, 8);
  for (const double sparsity : {0.1, 1.0}) {
    shape.attention_sparsity = sparsity;
    auto batcher = inputs.make(shape, 100);
    const auto first = batcher.next_visit(0).value();
    ASSERT_EQ(first.entries.size(), 2u);
    EXPECT_FALSE(first.entries[0].sparse) << "a prompt";
    EXPECT_EQ(first.entries[1].sparse, sparsity < 1) << "scored";
    finish(batcher, first, {false, false});
    const auto second = batcher.next_visit(0).value();
    ASSERT_EQ(second.entries.size(), 2u);
    EXPECT_EQ(second.entries[0].sparse, sparsity < 1) << "decoded";
    EXPECT_EQ(second.entries[1].sparse, sparsity < 1) << "scored";
  }
}

/// A random job, played to its end with every promise watched.
class RandomJob {
 public:
  RandomJob(unsigned seed, Admission admission) : random_(seed) {
    const auto pick = [&](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(random_);
    };
    shape_ = shape_of(pick(1, 4), pick(1, 3), pick(1, 4), pick(1, 40));
    const int count = pick(1, 30);
    std::int64_t longest = 0;
    for (int i = 0; i < count; ++i) {
      const bool scored_only = pick(0, 3) == 0;
      inputs_.add(static_cast<std::size_t>(pick(scored_only ? 2 : 1, 90)),
                  scored_only ? 0 : pick(1, 20));
      const auto& prompt = inputs_.prompts.back();
      longest =
          std::max(longest, offload::pages_for(static_cast<std::int64_t>(prompt.size()) +
                                                   inputs_.sequences.back().max_new_tokens - 1,
                                               shape_.page_tokens));
    }
    capacity_ = longest + pick(0, 30);
    shape_.admission = admission;
    for (const auto& prompt : inputs_.prompts) {
      shape_.longest_prompt =
          std::max(shape_.longest_prompt, static_cast<std::int64_t>(prompt.size()));
    }
    const int device = pick(0, 4);
    shares_ = {device / 4.0, pick(0, 4 - device) / 4.0};
  }

  void play() {
    auto batcher = inputs_.make(shape_, capacity_);
    const auto open = offload::KvPages::open_slots_for(shape_.places(), shape_.block());
    offload::KvPages pages(offload::split_by_shares(capacity_, shares_), shares_, open,
                           shape_.page_tokens, shape_.places());
    std::vector<std::optional<Visit>> in_flight(static_cast<std::size_t>(shape_.inner_iterations));
    for (bool any = true; any || !batcher.done();) {
      any = false;
      for (std::int32_t block = 0; block < shape_.inner_iterations; ++block) {
        auto& flight = in_flight[static_cast<std::size_t>(block)];
        if (flight) {
          end_visit(batcher, *flight);
          flight.reset();
        }
        if (auto visit = batcher.next_visit(block)) {
          check(batcher, *visit, pages);
          flight = std::move(visit);
          any = true;
        }
      }
      ASSERT_LT(++rounds_, 100000);
    }
    EXPECT_EQ(seen_.size(), inputs_.prompts.size());
    for (const auto& [sequence, tokens] : seen_) {
      EXPECT_EQ(tokens.size(), fed(sequence)) << "sequence " << sequence;
    }
  }

 private:
  /// Prompt tokens that must be fed.
  [[nodiscard]] std::size_t fed(std::size_t sequence) const {
    const bool scored_only = inputs_.sequences[sequence].max_new_tokens == 0;
    return inputs_.prompts[sequence].size() - (scored_only ? 1 : 0);
  }

  void check(const Batcher& batcher, const Visit& visit, offload::KvPages& pages) {
    EXPECT_LE(batcher.claimed_pages(), capacity_);
    EXPECT_LE(visit.rows(), shape_.max_visit_rows());
    for (const auto& release : visit.releases) {
      pages.release(release.block * shape_.block() + release.slot);
    }
    std::int64_t prompt_tokens = 0;
    std::int64_t starting = 0;
    std::int32_t last_slot = -1;
    for (const auto& entry : visit.entries) {
      EXPECT_GT(entry.slot, last_slot);
      last_slot = entry.slot;
      const auto sequence = static_cast<std::size_t>(batcher.sequence_at(visit.block, entry.slot));
      auto& seen = seen_[sequence];
      const auto& prompt = inputs_.prompts[sequence];
      if (seen.size() < fed(sequence)) {
        EXPECT_EQ(static_cast<std::size_t>(entry.first_position), seen.size());
        seen.insert(seen.end(), entry.tokens.begin(), entry.tokens.end());
        ASSERT_LE(seen.size(), fed(sequence));
        EXPECT_TRUE(std::equal(seen.begin(), seen.end(), prompt.begin()));
        EXPECT_EQ(entry.samples(), seen.size() == prompt.size());
        prompt_tokens += static_cast<std::int64_t>(entry.tokens.size());
        starting += seen.size() == fed(sequence) && entry.first_position == 0 ? 1 : 0;
      } else {
        EXPECT_EQ(entry.tokens.size(), 1u);
      }
      // Throws if the claims were not enough.
      pages.extend(visit.block * shape_.block() + entry.slot, entry.first_position,
                   static_cast<std::int64_t>(entry.tokens.size()));
    }
    pages.end_visit();
    if (shape_.admission == Admission::rolling) {
      EXPECT_LE(prompt_tokens, shape_.prefill_piece);
    } else {
      EXPECT_TRUE(starting == 0 || starting == static_cast<std::int64_t>(visit.entries.size()));
      EXPECT_TRUE(starting > 0 || prompt_tokens == 0) << "a prompt in pieces";
    }
  }

  void end_visit(Batcher& batcher, const Visit& visit) {
    std::vector<bool> ends;
    for (const auto& entry : visit.entries) {
      const auto sequence = static_cast<std::size_t>(batcher.sequence_at(visit.block, entry.slot));
      made_[sequence] += entry.samples() ? 1 : 0;
      const bool early = std::uniform_int_distribution<int>(0, 9)(random_) == 0;
      ends.push_back(entry.samples() &&
                     (early || made_[sequence] == inputs_.sequences[sequence].max_new_tokens));
    }
    finish(batcher, visit, ends);
  }

  std::mt19937 random_;
  BatchShape shape_;
  Inputs inputs_;
  offload::TierShares shares_;
  std::int64_t capacity_ = 0;
  std::map<std::size_t, std::vector<std::int32_t>> seen_;
  std::map<std::size_t, std::int64_t> made_;
  int rounds_ = 0;
};

TEST(Batcher, KeepsItsPromisesOverRandomJobs) {
  for (const auto admission : {Admission::rolling, Admission::whole}) {
    for (unsigned seed = 0; seed < 300; ++seed) {
      SCOPED_TRACE(seed);
      RandomJob(seed, admission).play();
      if (HasFailure()) {
        return;
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach::stage
