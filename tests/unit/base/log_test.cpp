#include "base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/error.hpp"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

template <typename Work>
std::string stderr_of(const Work& work) {
  ::testing::internal::CaptureStderr();
  work();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, WritesTimeNameLevelAndText) {
  EXPECT_THAT(stderr_of([] { Log("rank 2").info("{} layers", 8); }),
              MatchesRegex("[0-9][0-9]:[0-9][0-9]:[0-9][0-9] rank 2 info: 8 layers\n"));
}

TEST(Log, LeavesOutAnEmptyName) {
  EXPECT_THAT(stderr_of([] { Log("").warning("low on memory"); }),
              MatchesRegex("[0-9][0-9]:[0-9][0-9]:[0-9][0-9] warning: low on memory\n"));
}

TEST(Log, HidesWhatIsBelowItsLevel) {
  const auto all_levels = [](const Log& log) {
    log.debug("text-d");
    log.info("text-i");
    log.warning("text-w");
    log.error("text-e");
  };
  const char* levels[] = {"debug", "info", "warning", "error", "off"};
  const char* texts[] = {"text-d", "text-i", "text-w", "text-e"};
  for (std::size_t level = 0; level < std::size(levels); ++level) {
    const auto output = stderr_of([&] { all_levels(Log("", levels[level])); });
    for (std::size_t text = 0; text < std::size(texts); ++text) {
      EXPECT_EQ(output.find(texts[text]) != std::string::npos, text >= level)
          << levels[level] << ": " << output;
    }
  }
}

TEST(Log, RefusesAnUnknownLevel) {
  try {
    Log("", "loud");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--log-level loud"));
  }
}

TEST(Log, NamedKeepsTheLevel) {
  const auto output = stderr_of([] {
    const Log log("rank 1", "warning");
    const auto other = log.named("rank 1 stage");
    other.info("hidden");
    other.warning("shown");
    log.warning("by the first");
  });
  EXPECT_THAT(output, HasSubstr("rank 1 stage warning: shown\n"));
  EXPECT_THAT(output, HasSubstr("rank 1 warning: by the first\n"));
  EXPECT_THAT(output, Not(HasSubstr("hidden")));
}

TEST(Log, KeepsLinesWhole) {
  const std::string text(300, 'x');
  const auto output = stderr_of([&] {
    const Log log("");
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, own = log.named("t")] {
        for (int line = 0; line < 50; ++line) {
          (line % 2 == 0 ? log : own).info("{}", text);
        }
      });
    }
  });
  std::size_t lines = 0;
  for (std::size_t at = 0; at < output.size(); ++lines) {
    const auto end = output.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    const auto line = output.substr(at, end - at);
    EXPECT_TRUE(line.ends_with("info: " + text)) << line;
    EXPECT_LT(line.size(), 330u);
    at = end + 1;
  }
  EXPECT_EQ(lines, 200u);
}

}  // namespace
}  // namespace stagecoach
