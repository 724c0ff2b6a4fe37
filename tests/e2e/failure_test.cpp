// What goes wrong ends the job soon, says so in one line, and leaves results whole.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>

#include "e2e/tiny_opt.hpp"
#include "e2e/whole_jobs.hpp"
#include "support/program.hpp"

namespace stagecoach {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::Program;
using testing::SmallDisk;
using testing::TinyOpt;
using testing::Words;
using testing::operator+;

class Failure : public ::testing::Test {
 protected:
  Words job(const std::string& prompts, const std::string& output) const {
    return {STAGECOACH_PROGRAM, "run",  "--model",   tiny_.store(), "--prompts",    prompts,
            "--output",         output, "--threads", "1",           "--device-mem", "256MiB"};
  }

  std::string endless_prompts() const {
    return tiny_.folder().write("endless.jsonl", testing::endless_requests());
  }

  TinyOpt tiny_;
};

TEST_F(Failure, KillingAnyRankEndsTheJobAndKeepsResults) {
  for (int victim = 0; victim < 3; ++victim) {
    SCOPED_TRACE(victim);
    const auto output = tiny_.fresh_file("out");
    Program program(testing::mpiexec(3) + job(endless_prompts(), output));
    testing::wait_for_results(output);
    pid_t ranks[3];
    for (int rank = 0; rank < 3; ++rank) {
      ranks[rank] = program.find_rank(rank);
      ASSERT_GT(ranks[rank], 0);
    }
    ASSERT_EQ(::kill(ranks[victim], SIGKILL), 0);
    const auto end = testing::expect_end_soon(program);
    EXPECT_EQ(end.exit_code, 137) << end.err;
    for (const auto rank : ranks) {
      EXPECT_TRUE(testing::ends_soon(rank)) << "a rank outlived the job";
    }
    EXPECT_GT(testing::expect_whole_results(output), 0u);
  }
}

TEST_F(Failure, AFullDiskAtTheOutput) {
  const SmallDisk disk(64 << 10);
  if (!disk.mounted()) {
    GTEST_SKIP() << "mounting a small file system needs root";
  }
  const auto output = disk.folder() + "/out.jsonl";
  Program program(testing::mpiexec(2) + job(endless_prompts(), output));
  const auto end = program.wait(std::chrono::minutes(1));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->exit_code, 1);
  EXPECT_EQ(testing::lines_with(end->err, "stagecoach: "), 1) << end->err;
  EXPECT_THAT(end->err, HasSubstr("rank 0 on "));
  EXPECT_THAT(end->err, HasSubstr(output));
  EXPECT_GT(testing::expect_whole_results(output), 10u);
}

TEST_F(Failure, AnOutputThatIsAlwaysFull) {
  Program program(testing::mpiexec(2) + job(endless_prompts(), "/dev/full") + Words{"--overwrite"});
  const auto end = program.wait(std::chrono::minutes(1));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->exit_code, 1);
  EXPECT_EQ(testing::lines_with(end->err, "stagecoach: "), 1) << end->err;
  EXPECT_THAT(end->err, HasSubstr("No space left on device"));
}

TEST_F(Failure, AStoreMissingOnOneRank) {
  const testing::TempFolder elsewhere;
  const auto prompts = endless_prompts();
  Words run = {STAGECOACH_PROGRAM, "run",   "--model",  "tiny-opt.h5",
               "--prompts",        prompts, "--output", tiny_.fresh_file("out"),
               "--threads",        "1"};
  Program program(testing::mpiexec(2) + Words{"-wdir", tiny_.folder().path()} + run +
                  Words{":", "-n", "1", "-wdir", elsewhere.path()} + run);
  const auto end = testing::expect_end_soon(program);
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_EQ(testing::lines_with(end.err, "stagecoach: "), 1) << end.err;
  EXPECT_THAT(end.err, HasSubstr("rank 2 on "));
  EXPECT_THAT(end.err, HasSubstr("tiny-opt.h5"));
}

TEST_F(Failure, AnotherModelOnOneRankIsRefused) {
  const testing::TempFolder elsewhere;
  const auto made = testing::run_program({STAGECOACH_PROGRAM, "convert", "--dummy", "1", "--spec",
                                          STAGECOACH_SOURCE_DIR "/tests/data/tiny-opt-shapes.ini",
                                          "--to", elsewhere.file("tiny-opt.h5")});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  Words run = {STAGECOACH_PROGRAM, "run",
               "--model",          "tiny-opt.h5",
               "--prompts",        endless_prompts(),
               "--output",         tiny_.fresh_file("out"),
               "--threads",        "1"};
  Program program(testing::mpiexec(1) + Words{"-wdir", tiny_.folder().path()} + run +
                  Words{":", "-n", "1", "-wdir", elsewhere.path()} + run);
  const auto end = testing::expect_end_soon(program);
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_EQ(testing::lines_with(end.err, "stagecoach: "), 1) << end.err;
  EXPECT_THAT(end.err, HasSubstr("has another model"));
}

TEST_F(Failure, PromptsThatCannotBeRead) {
  for (const auto& prompts : {tiny_.folder().file("nowhere.jsonl"), tiny_.folder().path()}) {
    Program program(testing::mpiexec(2) + job(prompts, tiny_.fresh_file("out")));
    const auto end = testing::expect_end_soon(program);
    EXPECT_EQ(end.exit_code, 2);
    EXPECT_EQ(testing::lines_with(end.err, "stagecoach: "), 1) << end.err;
    EXPECT_THAT(end.err, HasSubstr(prompts));
  }
}

TEST_F(Failure, ASilentRankIsNamedAfterTheTimeout) {
  const auto output = tiny_.fresh_file("out");
  Program program(testing::mpiexec(2) + job(endless_prompts(), output) + Words{"--timeout", "2"});
  testing::wait_for_results(output);
  const auto silent = program.find_rank(1);
  ASSERT_GT(silent, 0);
  ASSERT_EQ(::kill(silent, SIGSTOP), 0);
  const auto end = program.wait(std::chrono::seconds(2) + testing::kSoon);
  ::kill(silent, SIGCONT);
  ASSERT_TRUE(end.has_value());
  EXPECT_NE(end->exit_code, 0);
  EXPECT_THAT(end->err, HasSubstr("rank 0 on "));
  // Whichever it waits for first: the silent rank's tokens, or that it takes the next visit.
  EXPECT_THAT(end->err, ContainsRegex("has waited 2 s (for|to send) visit [^\n]* "
                                      "(from|to) rank 1 on "));
  testing::expect_whole_results(output);
}

}  // namespace
}  // namespace stagecoach
