// The program under mpiexec gives what one process with loopback stages gives.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.hpp"
#include "e2e/tiny_opt.hpp"
#include "job/run_rank.hpp"
#include "support/program.hpp"

namespace stagecoach {
namespace {

using testing::TinyOpt;

std::vector<std::string> operator+(std::vector<std::string> left,
                                   const std::vector<std::string>& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

class MpiRun : public ::testing::Test {
 protected:
  std::vector<std::string> job(const std::string& prompts, const std::string& output) const {
    return {STAGECOACH_PROGRAM, "run",  "--model",    tiny_.store(), "--prompts",        prompts,
            "--output",         output, "--threads",  "1",           "--device-mem",     "512MiB",
            "--timeout",        "60",   "--logprobs", "3",           "--prompt-logprobs"};
  }

  std::map<std::string, std::string> loopback(const std::string& prompts) {
    const auto output = tiny_.fresh_file("loopback");
    auto config = testing::tiny_job(tiny_, prompts, output);
    config.num_logprobs = 3;
    config.prompt_logprobs = true;
    job::run_loopback(config, Log("", "error"));
    return testing::read_results(output);
  }

  TinyOpt tiny_;
};

TEST_F(MpiRun, SameBitsAsLoopbackForEveryNumberOfRanks) {
  const auto prompts = tiny_.folder().write("mixed.jsonl", testing::mixed_requests(24));
  const auto expected = loopback(prompts);
  const auto policies = tiny_.folder().write(
      "policies.ini",
      "[a node with a disk]\npercent = 0 0 0 20 0 0\noffload-dir = " + tiny_.folder().path() +
          "\n[a node with memory]\npercent = 40 60 50 50 100 0\n");
  struct Case {
    int ranks;
    std::vector<std::string> options;
  };
  const std::vector<Case> cases = {
      {1, {"--gpu-batch-size", "4"}},
      {2, {"--gpu-batch-size", "3", "--num-gpu-batches", "2", "--prefill-piece", "50"}},
      {3, {"--layers-per-stage", "1,5,2", "--gpu-batch-size", "2"}},
      {4, {"--prefill-piece", "9", "--gpu-batch-size", "8"}},
      {8, {"--gpu-batch-size", "1", "--inner-iterations", "9"}},
      {2, {"--stage-policy", policies, "--gpu-batch-size", "4", "--num-gpu-batches", "2"}},
      {3,
       {"--percent", "0", "30", "30", "30", "0", "50", "--offload-dir", tiny_.folder().path(),
        "--gpu-batch-size", "3", "--num-gpu-batches", "2", "--schedule", "zigzag"}},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.ranks);
    const auto output = tiny_.fresh_file("mpi");
    const auto end =
        testing::run_program(testing::mpiexec(test.ranks) + job(prompts, output) + test.options);
    ASSERT_EQ(end.exit_code, 0) << end.err;
    testing::expect_same_results(testing::read_results(output), expected);
  }
}

TEST_F(MpiRun, OrderedResultsAreInInputOrder) {
  const auto prompts = tiny_.folder().write("mixed.jsonl", testing::mixed_requests(15));
  const auto output = tiny_.fresh_file("mpi");
  const auto end = testing::run_program(testing::mpiexec(2) + job(prompts, output) +
                                        std::vector<std::string>{"--ordered"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  auto ordered_path = output;
  ordered_path.replace(ordered_path.size() - 5, 5, "ordered.jsonl");
  std::vector<nlohmann::json> ids;
  std::ifstream input(prompts);
  for (std::string line; std::getline(input, line);) {
    ids.push_back(nlohmann::json::parse(line).at("id"));
  }
  std::ifstream ordered(ordered_path);
  int next = 0;
  for (std::string line; std::getline(ordered, line); ++next) {
    EXPECT_EQ(nlohmann::json::parse(line).at("id"), ids.at(static_cast<std::size_t>(next)));
  }
  EXPECT_EQ(next, 15);
}

TEST_F(MpiRun, OnlyRankZeroNeedsTheIniFileAndThePrompts) {
  const testing::TempFolder empty;
  static_cast<void>(tiny_.folder().write("job.ini", "max-new-tokens = 3\ngpu-batch-size = 2\n"));
  static_cast<void>(tiny_.folder().write("p.jsonl", testing::mixed_requests(4)));
  const auto run = std::vector<std::string>{
      STAGECOACH_PROGRAM, "run",       "--config", "job.ini",  "--model",
      tiny_.store(),      "--prompts", "p.jsonl",  "--output", "out.jsonl"};
  auto command = testing::mpiexec(1) + std::vector<std::string>{"-wdir", tiny_.folder().path()} +
                 run + std::vector<std::string>{":", "-n", "1", "-wdir", empty.path()} + run;
  const auto end = testing::run_program(command);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(testing::read_results(tiny_.folder().file("out.jsonl")).size(), 4u);
}

// Rank 0 plans for all, and hears from all what they did.
TEST_F(MpiRun, APlannedJobGivesTheSameTokens) {
  const auto prompts = tiny_.folder().write("mixed.jsonl", testing::mixed_requests(12));
  const auto output = tiny_.fresh_file("mpi");
  const std::vector<std::string> planned = {
      STAGECOACH_PROGRAM, "run",   "--model",     tiny_.store(),
      "--prompts",        prompts, "--output",    output,
      "--threads",        "1",     "--timeout",   "60",
      "--plan",           "auto",  "--device",    "host",
      "--logprobs",       "3",     "--overwrite", "--prompt-logprobs"};
  const auto profile = [](const std::string& path) {
    return std::vector<std::string>{"--profile", path};
  };
  const auto end = testing::run_program(
      testing::mpiexec(2) + planned + profile(STAGECOACH_SOURCE_DIR "/tests/data/small-node.ini"));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_NE(end.err.find("info: planned\n2 stages"), std::string::npos) << end.err;
  EXPECT_NE(end.err.find("stage 1 compute"), std::string::npos) << end.err;
  testing::expect_same_results(testing::read_results(output), loopback(prompts));

  const auto bad = tiny_.folder().write("bad.ini", "[node]\ngpu = perhaps\n");
  const auto refused = testing::run_program(testing::mpiexec(2) + planned + profile(bad));
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_NE(refused.err.find("bad.ini"), std::string::npos) << refused.err;
}

TEST_F(MpiRun, EvalGivesTheSameTableOnEveryNumberOfRanks) {
  const auto words = read_text_file(testing::tiny_opt_folder() + "/lastword.jsonl");
  const auto some =
      tiny_.folder().write("words.jsonl", words.substr(0, words.find('\n', 1500) + 1));
  const auto pairs = tiny_.folder().write(
      "pairs.jsonl", R"({"id": 1, "context": "So be", "continuation": " it."})");
  const auto eval = [&](const std::string& lines) {
    return std::vector<std::string>{
        STAGECOACH_PROGRAM, "eval",   "--model",           tiny_.store(), "--last-word", some,
        "--logprobs",       pairs,    "--threads",         "1",           "--timeout",   "60",
        "--device-mem",     "512MiB", "--logprobs-output", lines,         "--log-level", "warning"};
  };
  const auto alone_lines = tiny_.fresh_file("alone");
  const auto alone = testing::run_program(eval(alone_lines));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_NE(alone.out.find("last_word   accuracy"), std::string::npos) << alone.out;
  const auto lines = tiny_.fresh_file("mpi");
  const auto end = testing::run_program(testing::mpiexec(2) + eval(lines) +
                                        std::vector<std::string>{"--prefill-piece", "9"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, alone.out);
  testing::expect_same_results(testing::read_results(lines), testing::read_results(alone_lines));
}

}  // namespace
}  // namespace stagecoach
