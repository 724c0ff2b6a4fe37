#include "job/eval_job.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "support/temp_folder.hpp"
#include "unit/job/tiny_tokenizer.hpp"

namespace stagecoach::job {
namespace {

using stagecoach::testing::tiny_tokenizer;
using ::testing::HasSubstr;

class EvalJobTest : public ::testing::Test {
 protected:
  EvalJobTest() {
    spec_.vocab = 2048;
    spec_.max_positions = 512;
    spec_.bos_token = 2;
    config_.perplexity_path = folder_.write("text", "Hello world\n\nHello world leading");
    config_.documents = DocumentSplit::blank_lines;
  }

  EvalJob read() { return read_eval_job(config_, {spec_, &tiny_tokenizer(), OnError::stop, log_}); }

  std::string failure() {
    try {
      read();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }

  testing::TempFolder folder_;
  model::ModelSpec spec_;
  EvalConfig config_;
  Log log_{"", "off"};
};

TEST_F(EvalJobTest, RollingTakesEachDocumentAlone) {
  const auto job = read();
  ASSERT_EQ(job.requests.size(), 2u);
  EXPECT_EQ(job.requests[0].prompt_tokens, (std::vector<std::int32_t>{2, 76, 576, 115, 1163}));
  EXPECT_EQ(job.requests[1].prompt_tokens,
            (std::vector<std::int32_t>{2, 76, 576, 115, 1163, 304, 919, 294}));
  for (const auto& request : job.requests) {
    EXPECT_EQ(request.max_new_tokens, 0);
    EXPECT_EQ(request.score_from, 1);
  }
  EXPECT_EQ(job.documents, 2);
  EXPECT_EQ(job.words, 5);
  EXPECT_EQ(job.bytes, 11 + 19);
}

TEST_F(EvalJobTest, StreamJoinsThem) {
  config_.method = PerplexityMethod::stream;
  config_.window = 4;
  const auto job = read();
  ASSERT_EQ(job.requests.size(), 3u) << "13 tokens: three windows of 4 and their targets";
  EXPECT_EQ(job.requests[1].prompt_tokens, (std::vector<std::int32_t>{1163, 2, 76, 576, 115}));
}

TEST_F(EvalJobTest, TasksFollowEachOther) {
  config_.last_word_path = folder_.write("words", "{\"text\":\"a b\"}\n{\"text\":\"c d\"}\n");
  config_.logprobs_path =
      folder_.write("pairs", R"({"id":"q","context_token_ids":[2],"continuation_token_ids":[3]})");
  const auto job = read();
  EXPECT_EQ(job.requests.size(), 5u);
  EXPECT_TRUE(job.perplexity.has(1) && !job.perplexity.has(2));
  EXPECT_TRUE(job.last_word.has(2) && job.last_word.has(3) && !job.last_word.has(4));
  EXPECT_TRUE(job.logprobs.has(4) && !job.logprobs.has(3));
  EXPECT_EQ(job.requests[4].id, "q");
}

TEST_F(EvalJobTest, WhatCannotBeScoredIsRefused) {
  config_.window = 513;
  EXPECT_THAT(failure(), HasSubstr("--window 513: the model takes 512"));
  config_.window = 10;
  config_.stride = 11;
  EXPECT_THAT(failure(), HasSubstr("--stride 11"));
  config_.stride = 10;
  EXPECT_EQ(failure(), "accepted");
  config_.perplexity_path = folder_.write("empty", "\n\n");
  EXPECT_THAT(failure(), HasSubstr("not one window"));
  config_.perplexity_path = folder_.write("bytes", "ab\xff");
  EXPECT_THAT(failure(), HasSubstr("byte 2 is not valid UTF-8"));
  config_.perplexity_path = folder_.file("none");
  EXPECT_THAT(failure(), HasSubstr("check --perplexity"));
  config_.perplexity_path = "";
  config_.last_word_path = folder_.write("no-words", "\n");
  EXPECT_THAT(failure(), HasSubstr("nothing to score"));
}

}  // namespace
}  // namespace stagecoach::job
