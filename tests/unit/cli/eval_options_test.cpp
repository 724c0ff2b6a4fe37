#include "cli/eval_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace stagecoach::cli {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

job::JobConfig read(const Words& options) {
  Words words = {"--model", "m.h5"};
  words.insert(words.end(), options.begin(), options.end());
  return read_eval_options(words, 1).value();
}

std::string refusal(const Words& options) {
  try {
    read(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(EvalOptions, TasksAndTheirSettings) {
  const auto config =
      read({"--perplexity", "t.txt", "--documents", "blank-lines", "--window", "64", "--stride",
            "16", "--last-word", "w.jsonl", "--logprobs", "p.jsonl", "--logprobs-output", "o.jsonl",
            "--output", "r.json", "--overwrite", "--on-error", "skip"});
  ASSERT_TRUE(config.eval);
  EXPECT_EQ(config.eval->perplexity_path, "t.txt");
  EXPECT_EQ(config.eval->method, job::PerplexityMethod::rolling);
  EXPECT_EQ(config.eval->documents, job::DocumentSplit::blank_lines);
  EXPECT_EQ(config.eval->window, 64);
  EXPECT_EQ(config.eval->stride, 16);
  EXPECT_EQ(config.eval->last_word_path, "w.jsonl");
  EXPECT_EQ(config.eval->logprobs_path, "p.jsonl");
  EXPECT_EQ(config.eval->logprobs_output_path, "o.jsonl");
  EXPECT_EQ(config.eval->report_path, "r.json");
  EXPECT_TRUE(config.overwrite && config.skip_bad_requests);
  EXPECT_EQ(read({"--perplexity", "t", "--perplexity-method", "stream"}).eval->method,
            job::PerplexityMethod::stream);
}

TEST(EvalOptions, TakesThePipelinesFlags) {
  const auto config =
      read({"--last-word", "w", "--stages", "3", "--gpu-batch-size", "7", "--prefill-piece", "9",
            "--kv-dtype", "f32", "--percent", "50", "50", "100", "0", "100", "0"});
  EXPECT_EQ(config.stages, 3);
  EXPECT_EQ(config.batch.gpu_batch_size, 7);
  EXPECT_EQ(config.batch.prefill_piece, 9);
  EXPECT_EQ(config.batch.kv_format.type, device::KvType::f32);
}

TEST(EvalOptions, MistakesNameTheFlag) {
  EXPECT_THAT(refusal({}), HasSubstr("--perplexity, --last-word, --logprobs: give at least one"));
  EXPECT_THAT(refusal({"--logprobs", "p"}), HasSubstr("--logprobs-output"));
  EXPECT_THAT(refusal({"--last-word", "w", "--logprobs-output", "p"}),
              HasSubstr("--logprobs-output"));
  EXPECT_THAT(refusal({"--last-word", "w", "--output", "-"}), HasSubstr("--output"));
  EXPECT_THAT(refusal({"--logprobs", "p", "--logprobs-output", "o", "--output", "o"}),
              HasSubstr("another file"));
  EXPECT_THAT(refusal({"--perplexity", "t", "--perplexity-method", "guess"}),
              HasSubstr("--perplexity-method guess: must be one of rolling, stream"));
  EXPECT_THAT(refusal({"--perplexity", "t", "--documents", "pages"}), HasSubstr("--documents"));
  EXPECT_THAT(refusal({"--perplexity", "t", "--window", "0"}), HasSubstr("--window 0"));
  EXPECT_THAT(refusal({"--perplexity", "t", "--perplexity-method", "stream", "--stride", "2"}),
              HasSubstr("--stride: needs --perplexity-method rolling"));
  EXPECT_THAT(refusal({"--last-word", "w", "--temperature", "1"}), HasSubstr("temperature"));
}

}  // namespace
}  // namespace stagecoach::cli
