// `eval` against the float64 reference, against `run`, and against itself however the job is cut.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.hpp"
#include "e2e/tiny_opt.hpp"
#include "job/run_rank.hpp"
#include "support/program.hpp"

namespace stagecoach {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::TinyOpt;
using Words = std::vector<std::string>;

/// Six choices: pairs of texts, and pairs of token ids, one of them as long as the model takes.
std::string choices() {
  std::string lines;
  for (const char* last : {" earth", " heaven", " light and the darkness"}) {
    lines += json{{"id", last}, {"context", "And God created the"}, {"continuation", last}}.dump() +
             "\n";
  }
  std::vector<int> longest = {2};
  for (int i = 1; i < 510; ++i) {
    longest.push_back(3 + i * 37 % 2000);
  }
  lines += json{{"id", 4}, {"context_token_ids", longest}, {"continuation_token_ids", {5, 6, 7}}}
               .dump() +
           "\n";
  lines += json{{"id", 5}, {"context_token_ids", {2}}, {"continuation_token_ids", {300}}}.dump();
  return lines + "\n";
}

class Eval : public ::testing::Test {
 protected:
  Eval() {
    config_ = testing::tiny_job(tiny_, "", "");
    config_.eval.emplace();
  }

  job::EvalReport run() { return job::run_loopback(config_, Log("", "error"))->eval.value(); }

  void take_reference_tasks() {
    config_.eval->perplexity_path = testing::tiny_opt_folder() + "/heldout.txt";
    config_.eval->method = job::PerplexityMethod::stream;
    config_.eval->documents = job::DocumentSplit::blank_lines;
    config_.eval->last_word_path = testing::tiny_opt_folder() + "/lastword.jsonl";
    config_.threads = 2;
  }

  TinyOpt tiny_;
  job::JobConfig config_;
};

TEST_F(Eval, FiguresAreThoseOfTheReference) {
  take_reference_tasks();
  const auto perplexity = testing::tiny_opt_reference().at("perplexity");
  const auto last_word = testing::tiny_opt_reference().at("last_word");
  for (const auto& [type, tolerance] :
       {std::pair(device::KvType::f16, 1e-4), std::pair(device::KvType::f32, 2e-6)}) {
    config_.batch.kv_format = type;
    const auto report = run();
    EXPECT_EQ(report.perplexity->sums.tokens, perplexity.at("tokens").get<std::int64_t>());
    const auto expected = perplexity.at("perplexity").get<double>();
    EXPECT_NEAR(report.perplexity->perplexity() / expected, 1, tolerance);
    EXPECT_NEAR(report.perplexity->nll_per_token(), perplexity.at("nll_per_token").get<double>(),
                tolerance);
    EXPECT_EQ(report.last_word->sums.items, last_word.at("examples").get<std::int64_t>());
    EXPECT_EQ(report.last_word->sums.greedy, last_word.at("right").get<std::int64_t>());
    EXPECT_NEAR(report.last_word->nll_per_word(), last_word.at("mean_nll_per_word").get<double>(),
                10 * tolerance);
    std::printf("perplexity %.6f, reference %.6f; NLL a word %.6f, reference %.6f\n",
                report.perplexity->perplexity(), expected, report.last_word->nll_per_word(),
                last_word.at("mean_nll_per_word").get<double>());
  }
}

/// What packing and sparse attention cost, by an independent implementation in float64:
/// tests/reference/README.md.
TEST_F(Eval, CompressionCostsWhatTheReferenceSays) {
  struct Figures {
    const char* name;
    Packing weights;
    device::KvFormat cache;
    double sparsity;
    double perplexity, nll_per_word;
    std::int64_t right;
  };
  constexpr auto kInt4 = device::KvType::int4;
  for (const auto& expected :
       {Figures{"int4 weights", Packing::int4, device::KvType::f32, 1, 18.9403, 5.6181, 87},
        Figures{"int4 cache", Packing::none, kInt4, 1, 18.9188, 5.6201, 87},
        Figures{"int4 both", Packing::int4, kInt4, 1, 19.0546, 5.6478, 89},
        Figures{"int8 both", Packing::int8, device::KvType::int8, 1, 18.8160, 5.6026, 87},
        Figures{"sparse", Packing::none, device::KvType::f32, 0.1, 32.3803, 6.1529, 66},
        Figures{"int4 both, sparse", Packing::int4, kInt4, 0.1, 32.4511, 6.2333, 65}}) {
    SCOPED_TRACE(expected.name);
    take_reference_tasks();
    config_.compression.weights = expected.weights;
    config_.batch.kv_format = expected.cache;
    config_.batch.attention_sparsity = expected.sparsity;
    const auto report = run();
    EXPECT_NEAR(report.perplexity->perplexity() / expected.perplexity, 1, 2e-4);
    EXPECT_NEAR(report.last_word->nll_per_word() / expected.nll_per_word, 1, 1e-3);
    EXPECT_NEAR(static_cast<double>(report.last_word->sums.greedy),
                static_cast<double>(expected.right), 1);
  }
}

/// A job with all tasks on little text.
class SmallEval : public Eval {
 protected:
  SmallEval() {
    const auto text = read_text_file(testing::tiny_opt_folder() + "/heldout.txt");
    const auto words = read_text_file(testing::tiny_opt_folder() + "/lastword.jsonl");
    config_.eval->perplexity_path = tiny_.folder().write("text.txt", text.substr(0, 12000));
    config_.eval->stride = 400;
    config_.eval->last_word_path =
        tiny_.folder().write("words.jsonl", words.substr(0, words.find('\n', 3000) + 1));
    config_.eval->logprobs_path = tiny_.folder().write("choices.jsonl", choices());
    config_.batch.gpu_batch_size = 8;
  }

  struct Outputs {
    json tasks;
    std::map<std::string, std::string> lines;
  };

  Outputs outputs(const std::function<void(job::JobConfig&)>& change) {
    auto config = config_;
    config.eval->report_path = tiny_.fresh_file("report");
    config.eval->logprobs_output_path = tiny_.fresh_file("lines");
    change(config);
    job::run_loopback(config, Log("", "error"));
    return {json::parse(read_text_file(config.eval->report_path)).at("tasks"),
            testing::read_results(config.eval->logprobs_output_path)};
  }
};

TEST_F(SmallEval, SameBitsHoweverTheJobIsCut) {
  const auto expected = outputs([](job::JobConfig&) {});
  EXPECT_EQ(expected.tasks.at("logprobs").at("items"), 5);
  const auto expect_same = [&](const char* what, const std::function<void(job::JobConfig&)>& how) {
    SCOPED_TRACE(what);
    const auto other = outputs(how);
    EXPECT_EQ(other.tasks.dump(), expected.tasks.dump());
    testing::expect_same_results(other.lines, expected.lines);
  };
  expect_same("two stages", [](job::JobConfig& config) { config.stages = 2; });
  expect_same("three stages, pieces of 7", [](job::JobConfig& config) {
    config.stages = 3;
    config.batch.prefill_piece = 7;
  });
  expect_same("pieces of 64, two GPU batches of 3", [](job::JobConfig& config) {
    config.batch.prefill_piece = 64;
    config.batch.gpu_batch_size = 3;
    config.batch.num_gpu_batches = 2;
  });
  expect_same("whole prompts", [](job::JobConfig& config) {
    config.schedule = stage::ScheduleKind::flexgen;
    config.batch.gpu_batch_size = 2;
  });
  expect_same("little room for the cache", [](job::JobConfig& config) {
    config.policies.front().device_mem_bytes = std::size_t{27} << 20;
    config.batch.prefill_piece = 64;
  });
}

TEST_F(SmallEval, SameBitsWithCompressionAndSparseAttentionWhereverTheCacheLives) {
  config_.compression.weights = Packing::int4;
  config_.batch.kv_format = device::KvType::int4;
  config_.batch.attention_sparsity = 0.1;
  config_.policies.front().offload_dir = tiny_.folder().path();
  const auto expected = outputs([](job::JobConfig&) {});
  for (const auto cpu_attention : {stage::Switch::off, stage::Switch::on}) {
    for (const std::int64_t piece : {5, 33}) {
      SCOPED_TRACE(piece);
      const auto other = outputs([&](job::JobConfig& config) {
        config.stages = 2;
        config.batch.prefill_piece = piece;
        config.batch.gpu_batch_size = 4;
        config.test_staging = piece == 33;
        config.policies.front().percent = {50, 50, 30, 30, 50, 50};
        config.policies.front().cpu_attention = cpu_attention;
      });
      EXPECT_EQ(other.tasks.dump(), expected.tasks.dump());
      testing::expect_same_results(other.lines, expected.lines);
    }
  }
}

TEST_F(SmallEval, ScoresAreThoseOfRunsPromptLogprobs) {
  const auto scored = outputs([](job::JobConfig& config) {
    config.eval->perplexity_path = config.eval->last_word_path = "";
    config.eval->stride = 0;
  });
  // The same tokens as a prompt; `run` needs room for one more, so not the longest.
  std::string prompts;
  const model::Tokenizer tokenizer(job::open_model(config_).tokenizer, 2048);
  for (const auto& [id, line] : scored.lines) {
    if (id != "4") {
      auto tokens =
          id == "5" ? std::vector<std::int32_t>{} : tokenizer.encode("And God created the");
      tokens.insert(tokens.begin(), 2);
      const auto scored_ids = json::parse(line).at("token_ids").get<std::vector<std::int32_t>>();
      tokens.insert(tokens.end(), scored_ids.begin(), scored_ids.end());
      prompts +=
          json{{"id", id}, {"prompt_token_ids", tokens}, {"max_new_tokens", 1}}.dump() + "\n";
    }
  }
  const auto output = tiny_.fresh_file("run");
  auto run = testing::tiny_job(tiny_, tiny_.folder().write("prompts.jsonl", prompts), output);
  run.prompt_logprobs = true;
  job::run_loopback(run, Log("", "error"));
  for (const auto& [id, line] : testing::read_results(output)) {
    const auto prompt = json::parse(line).at("prompt_logprobs");
    const auto mine = json::parse(scored.lines.at(id)).at("token_logprobs");
    double sum = 0;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const auto& other = prompt.at(prompt.size() - mine.size() + i);
      EXPECT_EQ(mine[i].get<float>(), other.at("logprob").get<float>()) << id;
      sum += mine[i].get<double>();
    }
    EXPECT_NEAR(json::parse(scored.lines.at(id)).at("logprob").get<double>(), sum, 1e-5);
  }
}

/// The program as a user meets it.
class EvalCommand : public ::testing::Test {
 protected:
  testing::ProgramEnd eval(const Words& options) {
    Words words = {STAGECOACH_PROGRAM, "eval",   "--model",     tiny_.store(), "--threads", "1",
                   "--device-mem",     "512MiB", "--log-level", "warning"};
    words.insert(words.end(), options.begin(), options.end());
    return testing::run_program(words);
  }

  TinyOpt tiny_;
  std::string words_ = tiny_.folder().write("w.jsonl", "{\"text\":\"a b\"}\n{\"text\":\"c\"}\n");
};

TEST_F(EvalCommand, PrintsATableAndRefusesToOverwrite) {
  const auto good = tiny_.folder().write("good.jsonl", "{\"text\":\"In the beginning\"}\n");
  const auto report = tiny_.folder().file("r.json");
  const auto end = eval({"--last-word", good, "--output", report});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("last_word   examples         1\n"));
  EXPECT_EQ(json::parse(read_text_file(report)).at("tasks").at("last_word").at("examples"), 1);
  const auto again = eval({"--last-word", good, "--output", report});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("--overwrite"));
  EXPECT_EQ(eval({"--last-word", good, "--output", report, "--overwrite"}).exit_code, 0);
}

TEST_F(EvalCommand, ABadLineEndsTheJobOrIsSkipped) {
  const auto report = tiny_.folder().file("r.json");
  const auto stopped = eval({"--last-word", words_, "--output", report});
  EXPECT_EQ(stopped.exit_code, 2);
  EXPECT_THAT(stopped.err, HasSubstr("w.jsonl:2: \"text\" has no last word"));
  EXPECT_FALSE(std::filesystem::exists(report));
  const auto skipped = eval({"--last-word", words_, "--on-error", "skip"});
  EXPECT_EQ(skipped.exit_code, 0) << skipped.err;
  EXPECT_THAT(skipped.out, HasSubstr("last_word   skipped          1\n"));
}

TEST_F(EvalCommand, InputsAreNotOverwritten) {
  const auto end = eval({"--last-word", words_, "--output", words_, "--overwrite"});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("also an input"));
  EXPECT_THAT(read_text_file(words_), HasSubstr("a b"));
}

}  // namespace
}  // namespace stagecoach
