// 'plan' by itself, and what 'run' takes of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.hpp"
#include "cli/commands.hpp"
#include "cli/run_options.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::cli {
namespace {

using stagecoach::testing::TempFolder;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

constexpr const char* kProfile = STAGECOACH_SOURCE_DIR "/tests/data/small-node.ini";

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Some requests of the smallest OPT on a node of round figures.
Words small_job() {
  return {"--spec",       STAGECOACH_SOURCE_DIR "/configs/models/opt-125m.ini",
          "--requests",   "8",
          "--prompt-len", "32",
          "--gen-len",    "8"};
}

std::string output_of(const Words& words) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(plan_command(words), 0);
  return ::testing::internal::GetCapturedStdout();
}

template <typename Work>
std::string refusal_of(const Work& work) {
  try {
    work();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

std::string plan_refusal(const Words& words) {
  return refusal_of([&] { plan_command(words); });
}

TEST(PlanCommand, SummarizesAndWritesAJobFile) {
  const TempFolder folder;
  const auto out = folder.file("job.ini");
  const auto words = small_job() + Words{"--profile", kProfile, "--out", out};
  const auto text = output_of(words);
  EXPECT_THAT(text, AllOf(HasSubstr("1 stage with 12 layers"), ContainsRegex("predicted: [0-9.]+"),
                          HasSubstr("bottleneck: ")));
  EXPECT_THAT(text, Not(HasSubstr("budget"))) << "tables only with --explain";
  const auto job = read_text_file(out);
  EXPECT_THAT(job, AllOf(HasSubstr("layers-per-stage = 12\n"), HasSubstr("[stage 0]\n"),
                         HasSubstr("# predicted: ")));
  EXPECT_THAT(plan_refusal(words), HasSubstr("--overwrite"));
}

TEST(PlanCommand, MistakesAreOneLine) {
  EXPECT_THAT(plan_refusal(small_job()), HasSubstr("give --profile FILE"));
  EXPECT_THAT(plan_refusal(small_job() + Words{"--profile", "/nowhere.ini"}),
              HasSubstr("/nowhere.ini"));
  const Words job = small_job() + Words{"--profile", kProfile};
  EXPECT_THAT(plan_refusal(job + Words{"--allow", "int2-weights"}),
              HasSubstr("--allow int2-weights: must be some of int4-weights"));
  EXPECT_THAT(plan_refusal(job + Words{"--max-latency", "0"}), HasSubstr("--max-latency 0"));
  EXPECT_THAT(plan_refusal(job + Words{"--cpu-mem", "lots"}), HasSubstr("--cpu-mem lots"));
  EXPECT_THAT(plan_refusal(job + Words{"--schedule", "column"}), HasSubstr("--schedule column"));
  EXPECT_THAT(plan_refusal({"--profile", kProfile, "--requests", "8"}), HasSubstr("plan: give"));
  const TempFolder folder;
  const auto bad = folder.write("bad.ini", "[node]\ngpu = perhaps\n");
  EXPECT_THAT(plan_refusal(small_job() + Words{"--profile", bad}), HasSubstr("bad.ini"));
}

TEST(PlanCommand, AnImpossibleJobSaysWhatIsMissing) {
  try {
    plan_command(small_job() + Words{"--profile", kProfile, "--device-mem", "1MiB"});
    ADD_FAILURE() << "planned";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("does not fit"), HasSubstr("1.00 MiB"), Not(HasSubstr("\n"))));
  }
}

Words run_words(const Words& more) {
  return Words{"--model", "m.h5", "--prompts", "p.jsonl", "--output", "o", "--device", "host"} +
         more;
}

std::string run_refusal(const Words& more) {
  return refusal_of([&] { read_run_request(run_words(more), 1); });
}

TEST(RunPlanning, IsOffUnlessAskedFor) {
  const auto plain = read_run_request(run_words({}), 1).value();
  EXPECT_FALSE(plain.planning.plan);
  EXPECT_TRUE(plain.planning.profiles.empty());
  const auto compared = read_run_request(run_words({"--profile", kProfile}), 1).value();
  EXPECT_FALSE(compared.planning.plan);
  ASSERT_EQ(compared.planning.profiles.size(), 1u);
  EXPECT_EQ(compared.planning.profiles.front().host, "a made-up node");
}

TEST(RunPlanning, RefusesWhatContradictsIt) {
  EXPECT_THAT(run_refusal({"--plan", "auto"}), HasSubstr("needs --profile"));
  EXPECT_THAT(run_refusal({"--plan", "always", "--profile", kProfile}),
              HasSubstr("--plan always: must be auto or off"));
  EXPECT_THAT(run_refusal({"--allow", "int4-cache"}), HasSubstr("--allow: is for --plan auto"));
  EXPECT_THAT(run_refusal({"--max-latency", "5"}), HasSubstr("--max-latency: is for --plan auto"));
  const Words planned = {"--plan", "auto", "--profile", kProfile};
  for (const Words& given :
       {Words{"--percent", "100 0 100 0 100 0"}, Words{"--gpu-batch-size", "4"},
        Words{"--layers-per-stage", "8"}, Words{"--compress-cache", "int4"}, Words{"--no-overlap"},
        Words{"--compress-weights", "int4"}, Words{"--inner-iterations", "2"}}) {
    EXPECT_THAT(run_refusal(planned + given),
                HasSubstr("--plan auto and " + given.front() + " exclude each other"));
  }
  EXPECT_THAT(
      refusal_of([&] {
        read_run_request(Words{"--model", "m.h5", "--prompts", "-", "--output", "o"} + planned, 1);
      }),
      HasSubstr("reads the requests twice"));
}

TEST(RunPlanning, TheProfileIsOfTheDeviceThatComputes) {
  EXPECT_THAT(
      run_refusal({"--profile", STAGECOACH_SOURCE_DIR "/configs/hardware/t4-gcp.ini"}),
      AllOf(HasSubstr("with a GPU"), HasSubstr("computes on the CPU"), HasSubstr("--device cuda")));
}

}  // namespace
}  // namespace stagecoach::cli
