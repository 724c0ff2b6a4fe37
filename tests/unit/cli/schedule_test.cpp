#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "cli/commands.hpp"

namespace stagecoach::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

Words job(const Words& more) {
  Words words = {"--spec",
                 STAGECOACH_SOURCE_DIR "/configs/models/opt-175b.ini",
                 "--gpu-batch-size",
                 "32",
                 "--num-gpu-batches",
                 "8",
                 "--prompt-len",
                 "512",
                 "--gen-len",
                 "32"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string output_of(const Words& more) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(schedule_command(job(more)), 0);
  return ::testing::internal::GetCapturedStdout();
}

std::string error_of(const Words& more) {
  ::testing::internal::CaptureStdout();
  std::string message;
  try {
    schedule_command(job(more));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    message = error.what();
  }
  ::testing::internal::GetCapturedStdout();
  return message;
}

TEST(ScheduleCommand, ShowsWhatADecodingVisitMoves) {
  const auto text = output_of(
      {"--percent", "0", "0", "100", "0", "100", "0", "--stages", "4", "--schedule", "zigzag"});
  EXPECT_THAT(text, HasSubstr("256 sequences, 256 rows"));
  // 24 of 96 layers of 12 x 12288^2 weights and their vectors, two bytes each: 81.0 GiB.
  EXPECT_THAT(text, ContainsRegex("disk read +[0-9]+ +0 +81.0 GiB"));
  EXPECT_THAT(text, Not(HasSubstr("attention_in"))) << "steps only with --explain";
}

TEST(ScheduleCommand, ExplainsEveryStep) {
  const auto text =
      output_of({"--percent", "20", "80", "0", "100", "0", "100", "--stages", "48", "--stage", "1",
                 "--schedule", "zigzag", "--inner-iterations", "1", "--explain"});
  EXPECT_THAT(text, ContainsRegex("step +queue +what +layer +batch"));
  EXPECT_THAT(text, ContainsRegex("cpu +attend_cpu +1 +7 +32 "));
  EXPECT_THAT(text, ContainsRegex("h2d +load_weights +1 "));
  EXPECT_THAT(text, ContainsRegex("receive +receive_hidden "));
  EXPECT_THAT(text, ContainsRegex("compute +mlp +1 +7 "));
}

TEST(ScheduleCommand, ShowsAVisitByNumber) {
  // The first visit brings a piece of 512 prompt tokens, one sequence.
  EXPECT_THAT(output_of({"--visit", "0", "--stages", "96"}), HasSubstr("1 sequences, 512 rows"));
  EXPECT_THAT(output_of({"--visit", "0", "--stages", "96", "--schedule", "zigzag"}),
              HasSubstr("256 sequences, 131072 rows"));
  // A block is prefilled and gives its first token in one visit, and 31 more in as many.
  EXPECT_THAT(error_of({"--visit", "32", "--inner-iterations", "1", "--schedule", "zigzag"}),
              HasSubstr("--visit 32: must be from 0 to 31"));
}

TEST(ScheduleCommand, RefusesWhatMakesNoSense) {
  EXPECT_THAT(error_of({"--stages", "4", "--stage", "4"}), HasSubstr("--stage 4"));
  EXPECT_THAT(error_of({"--model", "m.h5"}), HasSubstr("--model and --spec"));
  EXPECT_THAT(error_of({"--schedule", "zickzack"}), HasSubstr("rolling, zigzag, row, flexgen"));
}

}  // namespace
}  // namespace stagecoach::cli
