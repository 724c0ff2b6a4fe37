#include "job/eval_scores.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "job/eval_report.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::job {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TokenLogprob token(std::int32_t id, float logprob, std::int32_t likeliest) {
  return {.token = id, .logprob = logprob, .top_tokens = {likeliest}, .top_logprobs = {0}};
}

Completion completion(std::int64_t request, std::vector<TokenLogprob> tokens) {
  return {.request = request, .tokens = {}, .logprobs = {}, .prompt_logprobs = std::move(tokens)};
}

TEST(EvalScores, SumsInFloat64AndTellsGreedy) {
  EXPECT_EQ(score_of({token(5, -0.5f, 5), token(6, -0.25f, 6)}), (Score{-0.75, 2, true}));
  EXPECT_EQ(score_of({token(5, -0.5f, 5), token(6, -2, 7)}), (Score{-2.5, 2, false}));
  // In f32 the small ones would be lost.
  std::vector<TokenLogprob> tokens = {token(1, -16777216.0f, 1)};
  tokens.insert(tokens.end(), 1000, token(1, -0.5f, 1));
  EXPECT_EQ(score_of(tokens).logprob, -16777716.0);
}

TEST(EvalScores, AContinuationsLineReadsBack) {
  Request request;
  request.id = "a\"b";
  const auto line =
      format_continuation(request, completion(0, {token(5, -0.1f, 5), token(6, -2, 7)}));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto parsed = json::parse(line);
  EXPECT_EQ(parsed.at("id"), "a\"b");
  EXPECT_EQ(parsed.at("logprob").get<double>(), static_cast<double>(-0.1f) - 2);
  EXPECT_EQ(parsed.at("tokens"), 2);
  EXPECT_FALSE(parsed.at("is_greedy").get<bool>());
  EXPECT_EQ(parsed.at("token_ids"), json({5, 6}));
  EXPECT_EQ(parsed.at("token_logprobs")[0].get<float>(), -0.1f);
  request.id = "18446744073709551615";
  request.id_is_number = true;
  const auto infinite = json::parse(format_continuation(
      request, completion(0, {token(5, -std::numeric_limits<float>::infinity(), 5)})));
  EXPECT_EQ(infinite.at("id").get<std::uint64_t>(), 18446744073709551615u);
  EXPECT_TRUE(infinite.at("logprob").is_null());
  EXPECT_TRUE(infinite.at("token_logprobs")[0].is_null());
}

/// Two windows, two last words and one continuation, finished in another order.
class ThreeTasks : public ::testing::Test {
 protected:
  ThreeTasks() {
    job_.requests.resize(5);
    job_.requests[4].id = "x";
    job_.perplexity = {.begin = 0, .end = 2};
    job_.last_word = {.begin = 2, .end = 4, .skipped = 3};
    job_.logprobs = {.begin = 4, .end = 5};
    job_.documents = 1;
    job_.words = 2;
    job_.bytes = 12;
    config_.perplexity_path = config_.last_word_path = config_.logprobs_path = "some";
  }

  EvalReport report() {
    LineFile lines({.path = folder_.file("lines.jsonl"), .overwrite = true});
    EvalScores sink(job_, &lines);
    const auto write = [&](std::int64_t request, std::vector<TokenLogprob> tokens) {
      sink.write(job_.requests[static_cast<std::size_t>(request)],
                 completion(request, std::move(tokens)), "");
    };
    write(4, {token(9, -0.5f, 9)});
    write(3, {token(1, -1, 1), token(2, -1, 3)});
    write(1, {token(1, -2, 3)});
    write(0, {token(1, -1, 1), token(2, -3, 1)});
    write(2, {token(1, -1, 1)});
    lines.close();
    return make_report(config_, job_, sink.scores());
  }

  testing::TempFolder folder_;
  EvalJob job_;
  EvalConfig config_;
};

TEST_F(ThreeTasks, FiguresAreTheirDefinitions) {
  const auto report = this->report();
  ASSERT_TRUE(report.perplexity && report.last_word && report.logprobs);
  EXPECT_EQ(report.perplexity->sums.tokens, 3);
  EXPECT_DOUBLE_EQ(report.perplexity->nll_per_token(), 2);
  EXPECT_DOUBLE_EQ(report.perplexity->perplexity(), std::exp(2.0));
  EXPECT_DOUBLE_EQ(report.perplexity->word_perplexity(), std::exp(3.0));
  EXPECT_DOUBLE_EQ(report.perplexity->byte_perplexity(), std::exp(0.5));
  EXPECT_DOUBLE_EQ(report.perplexity->bits_per_byte(), 0.5 / std::log(2.0));
  EXPECT_EQ(report.last_word->sums.items, 2);
  EXPECT_DOUBLE_EQ(report.last_word->accuracy(), 0.5);
  EXPECT_DOUBLE_EQ(report.last_word->nll_per_word(), 1.5);
  EXPECT_DOUBLE_EQ(report.last_word->perplexity(), std::exp(1.5));
  EXPECT_EQ(report.logprobs->greedy, 1);
}

TEST_F(ThreeTasks, OnlyContinuationsHaveLines) {
  report();
  const auto text = read_text_file(folder_.file("lines.jsonl"));
  EXPECT_EQ(json::parse(text).at("id"), "x");
}

TEST_F(ThreeTasks, TheJsonHasFiguresAndOrigin) {
  const auto text = format_report(report(), {.version = "1.2",
                                             .model_name = "tiny",
                                             .model_digest = "abc",
                                             .arithmetic = "avx2",
                                             .configuration = R"({"stages":3})"});
  const auto parsed = json::parse(text);
  EXPECT_EQ(parsed.at("stagecoach"), "1.2");
  EXPECT_EQ(parsed.at("model").at("digest"), "abc");
  EXPECT_EQ(parsed.at("configuration").at("stages"), 3);
  EXPECT_DOUBLE_EQ(parsed.at("tasks").at("perplexity").at("nll_per_token").get<double>(), 2);
  EXPECT_EQ(parsed.at("tasks").at("last_word").at("right"), 1);
  EXPECT_EQ(parsed.at("tasks").at("last_word").at("skipped"), 3);
  EXPECT_EQ(parsed.at("tasks").at("logprobs").at("items"), 1);
}

TEST_F(ThreeTasks, AStreamHasNoFiguresOfWordsAndBytes) {
  config_.method = PerplexityMethod::stream;
  const auto table = format_table(report());
  EXPECT_THAT(table, HasSubstr("perplexity  nll_per_token    2.000000\n"));
  EXPECT_THAT(table, ::testing::Not(HasSubstr("word_perplexity")));
  config_.method = PerplexityMethod::rolling;
  EXPECT_THAT(format_table(report()), HasSubstr("word_perplexity"));
}

TEST_F(ThreeTasks, TasksThatWereNotAskedForAreLeftOut) {
  config_.perplexity_path = config_.logprobs_path = "";
  const auto report = this->report();
  EXPECT_FALSE(report.perplexity || report.logprobs);
  EXPECT_THAT(format_table(report), ::testing::StartsWith("last_word "));
}

}  // namespace
}  // namespace stagecoach::job
