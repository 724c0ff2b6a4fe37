#include "stage/visit.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace stagecoach::stage {
namespace {

Visit sample_visit() {
  Visit visit;
  visit.number = 41;
  visit.block = 3;
  visit.releases = {{1, 7}, {3, 0}};
  VisitEntry piece;
  piece.slot = 0;
  piece.tokens = {2, 100, 101};
  piece.next_prompt_token = 55;
  piece.score_from = 2;
  piece.sparse = true;
  piece.num_logprobs = 5;
  VisitEntry decode;
  decode.slot = 4;
  decode.first_position = 17;
  decode.tokens = {9};
  decode.sampling = {.temperature = 0.7, .top_k = 40, .top_p = 0.9, .key = 0x123456789abcdefull};
  visit.entries = {piece, decode};
  return visit;
}

TEST(Visit, ScoresWhatComesAfterItsRows) {
  // Positions 10, 11, 12; the token at 13 is a prompt token too.
  VisitEntry piece{
      .first_position = 10, .tokens = {5, 6, 7}, .next_prompt_token = 8, .sampling = {}};
  const auto scored = [&](std::int32_t from) {
    piece.score_from = from;
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < 3; ++row) {
      if (piece.scores(row)) {
        rows.push_back(row);
      }
    }
    return rows;
  };
  using Rows = std::vector<std::int64_t>;
  EXPECT_EQ(scored(1), (Rows{0, 1, 2}));
  EXPECT_EQ(piece.head_rows(), 3);
  EXPECT_EQ(scored(11), (Rows{0, 1, 2}));
  EXPECT_EQ(scored(13), (Rows{2}));
  EXPECT_EQ(piece.head_rows(), 1);
  EXPECT_EQ(scored(14), Rows{});
  EXPECT_EQ(scored(kScoreNothing), Rows{});
  EXPECT_EQ(piece.head_rows(), 0);
  // The prompt's end: the last row gives a new token and scores nothing.
  piece.next_prompt_token = -1;
  EXPECT_EQ(scored(12), (Rows{1}));
  EXPECT_EQ(piece.head_rows(), 2);
  EXPECT_EQ(scored(kScoreNothing), Rows{});
  EXPECT_EQ(piece.head_rows(), 1);
}

TEST(Visit, CountsRowsAndKnowsWhoSamples) {
  const auto visit = sample_visit();
  EXPECT_EQ(visit.rows(), 4);
  EXPECT_FALSE(visit.entries[0].samples());
  EXPECT_TRUE(visit.entries[1].samples());
}

TEST(Visit, CrossesTheWireUnchanged) {
  const auto visit = sample_visit();
  EXPECT_EQ(parse_visit(serialize(visit)), visit);
  Visit last;
  last.last = true;
  EXPECT_EQ(parse_visit(serialize(last)), last);
}

TEST(Visit, RefusesBytesCutAnywhere) {
  const auto bytes = serialize(sample_visit());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(parse_visit(std::span(bytes).first(size)), FormatError) << size;
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THROW(parse_visit(longer), FormatError);
}

TEST(Visit, OutcomesCrossTheWireUnchanged) {
  std::vector<EntryOutcome> outcomes(2);
  outcomes[0].prompt = {
      {.token = 5, .logprob = -1.5f, .top_tokens = {1, 2}, .top_logprobs = {-0.25f, -3}}};
  outcomes[1].sampled = true;
  outcomes[1].chosen = {.token = 77, .logprob = -0.125f, .top_tokens = {}, .top_logprobs = {}};
  const auto back = parse_outcomes(serialize(outcomes));
  ASSERT_EQ(back.size(), 2u);
  EXPECT_FALSE(back[0].sampled);
  ASSERT_EQ(back[0].prompt.size(), 1u);
  EXPECT_EQ(back[0].prompt[0].top_tokens, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(back[0].prompt[0].top_logprobs, (std::vector<float>{-0.25f, -3}));
  EXPECT_TRUE(back[1].sampled);
  EXPECT_EQ(back[1].chosen.token, 77);
  EXPECT_EQ(back[1].chosen.logprob, -0.125f);
}

}  // namespace
}  // namespace stagecoach::stage
