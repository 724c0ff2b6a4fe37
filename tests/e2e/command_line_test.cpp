// The program as a user meets it, without MPI: exit codes, one-line errors, dry runs, dummy
// weights.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "e2e/tiny_opt.hpp"
#include "support/program.hpp"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using testing::ProgramEnd;
using testing::TinyOpt;
using Words = std::vector<std::string>;

ProgramEnd stagecoach(const Words& words) {
  Words command = {STAGECOACH_PROGRAM};
  command.insert(command.end(), words.begin(), words.end());
  return testing::run_program(command);
}

class CommandLine : public ::testing::Test {
 protected:
  CommandLine() { prompts_ = tiny_.folder().write("p.jsonl", testing::mixed_requests(6)); }

  ProgramEnd run(const Words& options) {
    Words words = {"run",      "--model", tiny_.store(), "--prompts", prompts_,
                   "--output", output(),  "--threads",   "1"};
    words.insert(words.end(), options.begin(), options.end());
    return stagecoach(words);
  }

  /// Exit code 2 and exactly one line, which has `part`.
  void expect_refused(const Words& options, const std::string& part) {
    const auto end = run(options);
    EXPECT_EQ(end.exit_code, 2) << end.err;
    EXPECT_THAT(end.err, HasSubstr(part));
    EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
    EXPECT_FALSE(std::filesystem::exists(output()));
  }

  [[nodiscard]] std::string output() const { return tiny_.folder().file("out.jsonl"); }

  TinyOpt tiny_;
  std::string prompts_;
};

TEST_F(CommandLine, RunsAndRefusesToOverwrite) {
  EXPECT_EQ(run({}).exit_code, 0);
  EXPECT_EQ(testing::read_results(output()).size(), 6u);
  const auto again = run({});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("--overwrite"));
  EXPECT_EQ(testing::read_results(output()).size(), 6u);
  EXPECT_EQ(run({"--overwrite", "--max-new-tokens", "1"}).exit_code, 0);
}

TEST_F(CommandLine, BadOptionsAreOneLineAndExitCodeTwo) {
  expect_refused({"--no-such-option"}, "no-such-option");
  expect_refused({"--gpu-batch-size", "0"}, "--gpu-batch-size");
  expect_refused({"--gpu-batch-size", "many"}, "gpu-batch-size");
  expect_refused({"--page-tokens", "17"}, "--page-tokens");
  expect_refused({"--stages", "9"}, "use 1 to 8 stages");
  expect_refused({"--stages", "2", "--layers-per-stage", "4,5"}, "the model has 8");
  expect_refused({"--layers-per-stage", "4,x"}, "--layers-per-stage");
  expect_refused({"--on-error", "ignore"}, "--on-error");
  expect_refused({"--top-p", "0"}, "--top-p");
  expect_refused({"--isa", "mmx"}, "--isa");
  expect_refused({"--log-level", "loud"}, "--log-level");
  expect_refused({"--config", tiny_.folder().file("none.ini")}, "none.ini");
  expect_refused({"--transport", "pigeons"}, "--transport");
  expect_refused({"--dummy", "1"}, "--dummy");
}

// The same tokens as without a plan, whether 'plan' made it or 'run' itself.
TEST_F(CommandLine, APlannedJobGivesThePlainOnesTokens) {
  ASSERT_EQ(run({}).exit_code, 0);
  const auto plain = testing::read_results(output());
  const std::string profile = STAGECOACH_SOURCE_DIR "/tests/data/small-node.ini";
  const auto job = tiny_.fresh_file("job");
  const auto planned =
      stagecoach({"plan", "--model", tiny_.store(), "--prompts", prompts_, "--profile", profile,
                  "--stages", "2", "--stages-per-node", "2", "--out", job});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("2 stages"));

  auto end = run({"--config", job, "--overwrite", "--profile", profile});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("predicted and measured"));
  EXPECT_THAT(end.err, HasSubstr("stage 1 compute"));
  testing::expect_same_results(testing::read_results(output()), plain);

  end = run(
      {"--plan", "auto", "--profile", profile, "--stages", "2", "--overwrite", "--device", "host"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("info: planned"));
  testing::expect_same_results(testing::read_results(output()), plain);
}

TEST_F(CommandLine, APlanThatCannotBeIsOneLineAndExitCodeTwo) {
  const std::string profile = STAGECOACH_SOURCE_DIR "/tests/data/small-node.ini";
  expect_refused({"--plan", "auto", "--profile", tiny_.folder().file("none.ini")}, "none.ini");
  expect_refused({"--plan", "auto"}, "--profile");
  expect_refused({"--plan", "auto", "--profile", profile, "--gpu-batch-size", "4"},
                 "--gpu-batch-size");
  expect_refused({"--plan", "auto", "--profile", profile, "--device-mem", "1MiB"}, "does not fit");
}

TEST_F(CommandLine, NeverOverwritesItsInputs) {
  for (const auto& input : {prompts_, tiny_.store()}) {
    const auto size = std::filesystem::file_size(input);
    const auto end = stagecoach({"run", "--model", tiny_.store(), "--prompts", prompts_, "--output",
                                 input, "--overwrite", "--threads", "1"});
    EXPECT_EQ(end.exit_code, 2);
    EXPECT_THAT(end.err, HasSubstr("is also an input"));
    EXPECT_EQ(std::filesystem::file_size(input), size);
  }
}

TEST_F(CommandLine, AJobThatDoesNotFitIsRefusedWithNumbers) {
  expect_refused({"--device-mem", "8MiB"}, "the job does not fit");
  expect_refused({"--device-mem", "100TiB"}, "free for each of its 1 stages");
}

TEST_F(CommandLine, BadRequestsNameTheirLine) {
  std::ofstream(prompts_, std::ios::app) << "{\"id\": \"x\", \"prompt\": 5}\n";
  expect_refused({}, "p.jsonl:7:");
  const auto skipped = run({"--on-error", "skip"});
  EXPECT_EQ(skipped.exit_code, 0);
  EXPECT_THAT(skipped.err, HasSubstr("p.jsonl:7:"));
  EXPECT_EQ(testing::read_results(output()).size(), 6u);
}

TEST_F(CommandLine, AnIniFileSetsOptionsAndTheCommandLineWins) {
  const auto ini = tiny_.folder().write("job.ini", "max-new-tokens = 5\nignore-eos = true\n");
  const auto prompts = tiny_.folder().write("one.jsonl", "{\"id\":1,\"prompt\":\"And\"}\n");
  ASSERT_EQ(run({"--config", ini, "--prompts", prompts}).exit_code, 2);  // given twice
  prompts_ = prompts;
  ASSERT_EQ(run({"--config", ini}).exit_code, 0);
  auto line = nlohmann::json::parse(testing::read_results(output()).at("1"));
  EXPECT_EQ(line.at("completion_tokens"), 5);
  ASSERT_EQ(run({"--config", ini, "--max-new-tokens", "2", "--overwrite"}).exit_code, 0);
  line = nlohmann::json::parse(testing::read_results(output()).at("1"));
  EXPECT_EQ(line.at("completion_tokens"), 2);
}

TEST_F(CommandLine, ADryRunShowsStagesAndMemoryAndRunsNothing) {
  const auto end = run({"--dry-run", "--stages", "3"});
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.err, HasSubstr("layers 0 to 2"));
  EXPECT_THAT(end.err, HasSubstr("layers 6 to 7, head"));
  EXPECT_THAT(end.err, HasSubstr("KV cache"));
  EXPECT_FALSE(std::filesystem::exists(output()));
}

TEST_F(CommandLine, DummyWeightsAreTheSameAtLoadAndAsAStoreForEverySplit) {
  const std::string spec = STAGECOACH_SOURCE_DIR "/tests/data/tiny-opt-shapes.ini";
  const auto store = tiny_.folder().file("dummy.h5");
  ASSERT_EQ(stagecoach({"convert", "--dummy", "7", "--spec", spec, "--to", store}).exit_code, 0);
  const auto with = [&](const Words& model, const std::string& stages) {
    Words words = {"run",      "--prompts", prompts_,    "--output", output(),     "--overwrite",
                   "--stages", stages,      "--threads", "1",        "--logprobs", "2"};
    // Stop strings need a tokenizer, which dummy weights have not.
    words.insert(words.end(), {"--tokenizer", testing::tiny_opt_folder()});
    words.insert(words.end(), model.begin(), model.end());
    const auto end = stagecoach(words);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return testing::read_results(output());
  };
  const auto expected = with({"--model", store}, "1");
  EXPECT_EQ(expected.size(), 6u);
  EXPECT_EQ(with({"--dummy", "7", "--spec", spec}, "1"), expected);
  EXPECT_EQ(with({"--dummy", "7", "--spec", spec}, "5"), expected);
  EXPECT_NE(with({"--dummy", "8", "--spec", spec}, "1"), expected);
}

TEST_F(CommandLine, ReadsStandardInputAndWritesStandardOutput) {
  const auto end = testing::run_program(
      {"sh", "-c",
       std::string(STAGECOACH_PROGRAM) + " run --model " + tiny_.store() +
           " --prompts - --output - --log-level error --threads 1 < " + prompts_});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(std::count(end.out.begin(), end.out.end(), '\n'), 6);
  EXPECT_EQ(end.err, "");
}

TEST_F(CommandLine, HelpAndVersion) {
  EXPECT_EQ(stagecoach({}).exit_code, 2);
  EXPECT_EQ(stagecoach({"--help"}).exit_code, 0);
  EXPECT_EQ(stagecoach({"no-such-command"}).exit_code, 2);
  const auto help = stagecoach({"run", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--gpu-batch-size"));
  EXPECT_THAT(stagecoach({"--version"}).out, HasSubstr("stagecoach 0."));
}

TEST_F(CommandLine, InfoVerifiesAStore) {
  EXPECT_EQ(stagecoach({"info", "--model", tiny_.store(), "--verify"}).exit_code, 0);
  {
    std::fstream file(tiny_.store(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(8 << 20);
    file.put('\x55');
    file.put('\x55');
  }
  const auto damaged = stagecoach({"info", "--model", tiny_.store(), "--verify"});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.err, HasSubstr("layers/"));
}

}  // namespace
}  // namespace stagecoach
