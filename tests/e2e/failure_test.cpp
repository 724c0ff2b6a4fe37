// What goes wrong ends the job soon, says so in one line, and leaves results whole.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "e2e/tiny_opt.hpp"
#include "support/program.hpp"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using testing::Program;
using testing::ProgramEnd;
using testing::TinyOpt;
using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

constexpr auto kSoon = std::chrono::seconds(10);

Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

/// A file system in memory that holds no more than `size_bytes`.
class SmallDisk {
 public:
  explicit SmallDisk(std::size_t size_bytes)
      : mounted_(::mount("tmpfs", where_.path().c_str(), "tmpfs", 0,
                         fmt::format("size={}", size_bytes).c_str()) == 0) {}
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  SmallDisk(SmallDisk&&) = delete;
  SmallDisk& operator=(SmallDisk&&) = delete;
  ~SmallDisk() {
    if (mounted_) {
      ::umount2(where_.path().c_str(), MNT_DETACH);
    }
  }

  [[nodiscard]] bool mounted() const noexcept { return mounted_; }
  [[nodiscard]] std::string folder() const { return where_.path(); }

 private:
  testing::TempFolder where_;
  bool mounted_;
};

class Failure : public ::testing::Test {
 protected:
  Words job(const std::string& prompts, const std::string& output) const {
    return {STAGECOACH_PROGRAM, "run",  "--model",   tiny_.store(), "--prompts",    prompts,
            "--output",         output, "--threads", "1",           "--device-mem", "256MiB"};
  }

  /// Far more work than any of these tests lets be done.
  std::string endless_prompts() const {
    std::string lines;
    for (int i = 0; i < 4000; ++i) {
      lines +=
          fmt::format(
              R"({{"id":{},"prompt":"In the beginning","max_new_tokens":60,"ignore_eos":true}})",
              i) +
          "\n";
    }
    return tiny_.folder().write("endless.jsonl", lines);
  }

  /// Waits until the output has some results.
  static void wait_for_results(const std::string& output) {
    const auto deadline = Clock::now() + std::chrono::minutes(1);
    std::error_code error;
    while (std::filesystem::file_size(output, error) < 2000 || error) {
      ASSERT_LT(Clock::now(), deadline) << "no results";
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  /// Every line is a whole result; returns how many there are.
  static std::size_t expect_whole_results(const std::string& output) {
    std::ifstream in(output, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_TRUE(text.empty() || text.back() == '\n');
    const auto results = testing::read_results(output);  // throws on a broken line
    for (const auto& [id, line] : results) {
      EXPECT_EQ(nlohmann::json::parse(line).at("completion_tokens"), 60);
    }
    return results.size();
  }

  static ProgramEnd expect_end_soon(Program& program) {
    const auto end = program.wait(kSoon);
    EXPECT_TRUE(end.has_value()) << "still running after ten seconds";
    return end.value_or(ProgramEnd{});
  }

  /// Whether a process is gone, or dead and only not yet waited for by its parent, within ten
  /// seconds.
  static bool ends_soon(pid_t pid) {
    const auto deadline = Clock::now() + kSoon;
    while (Clock::now() < deadline) {
      std::ifstream in(fmt::format("/proc/{}/stat", pid));
      std::string text;
      std::getline(in, text);
      const auto state = text.rfind(") ");
      if (state == std::string::npos || text[state + 2] == 'Z' || text[state + 2] == 'X') {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  static int lines_with(const std::string& text, const std::string& part) {
    int count = 0;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      count += line.find(part) != std::string::npos ? 1 : 0;
    }
    return count;
  }

  TinyOpt tiny_;
};

TEST_F(Failure, KillingAnyRankEndsTheJobAndKeepsResults) {
  for (int victim = 0; victim < 3; ++victim) {
    SCOPED_TRACE(victim);
    const auto output = tiny_.fresh_file("out");
    Program program(testing::mpiexec(3) + job(endless_prompts(), output));
    wait_for_results(output);
    pid_t ranks[3];
    for (int rank = 0; rank < 3; ++rank) {
      ranks[rank] = program.find_rank(rank);
      ASSERT_GT(ranks[rank], 0);
    }
    ASSERT_EQ(::kill(ranks[victim], SIGKILL), 0);
    const auto end = expect_end_soon(program);
    EXPECT_EQ(end.exit_code, 137) << end.err;
    for (const auto rank : ranks) {
      EXPECT_TRUE(ends_soon(rank)) << "a rank outlived the job";
    }
    EXPECT_GT(expect_whole_results(output), 0u);
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
  EXPECT_EQ(lines_with(end->err, "stagecoach: "), 1) << end->err;
  EXPECT_THAT(end->err, HasSubstr("rank 0 on "));
  EXPECT_THAT(end->err, HasSubstr(output));
  EXPECT_GT(expect_whole_results(output), 10u);
}

TEST_F(Failure, AnOutputThatIsAlwaysFull) {
  Program program(testing::mpiexec(2) + job(endless_prompts(), "/dev/full") + Words{"--overwrite"});
  const auto end = program.wait(std::chrono::minutes(1));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->exit_code, 1);
  EXPECT_EQ(lines_with(end->err, "stagecoach: "), 1) << end->err;
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
  const auto end = expect_end_soon(program);
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_EQ(lines_with(end.err, "stagecoach: "), 1) << end.err;
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
  const auto end = expect_end_soon(program);
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_EQ(lines_with(end.err, "stagecoach: "), 1) << end.err;
  EXPECT_THAT(end.err, HasSubstr("has another model"));
}

TEST_F(Failure, PromptsThatCannotBeRead) {
  for (const auto& prompts : {tiny_.folder().file("nowhere.jsonl"), tiny_.folder().path()}) {
    Program program(testing::mpiexec(2) + job(prompts, tiny_.fresh_file("out")));
    const auto end = expect_end_soon(program);
    EXPECT_EQ(end.exit_code, 2);
    EXPECT_EQ(lines_with(end.err, "stagecoach: "), 1) << end.err;
    EXPECT_THAT(end.err, HasSubstr(prompts));
  }
}

TEST_F(Failure, ASilentRankIsNamedAfterTheTimeout) {
  const auto output = tiny_.fresh_file("out");
  Program program(testing::mpiexec(2) + job(endless_prompts(), output) + Words{"--timeout", "2"});
  wait_for_results(output);
  const auto silent = program.find_rank(1);
  ASSERT_GT(silent, 0);
  ASSERT_EQ(::kill(silent, SIGSTOP), 0);
  const auto end = program.wait(std::chrono::seconds(2) + kSoon);
  ::kill(silent, SIGCONT);
  ASSERT_TRUE(end.has_value());
  EXPECT_NE(end->exit_code, 0);
  EXPECT_THAT(end->err, HasSubstr("rank 0 on "));
  EXPECT_THAT(end->err, HasSubstr("has waited 2 s for visit "));
  EXPECT_THAT(end->err, HasSubstr("from rank 1 on "));
  expect_whole_results(output);
}

}  // namespace
}  // namespace stagecoach
