#include "cli/run_comparison.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach::cli {
namespace {

using stage::Resource;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::size_t at(Resource resource) { return static_cast<std::size_t>(resource); }

struct Case {
  job::WholeJob whole;
  job::RunTotals measured;
  plan::SimulationResult predicted;
};

/// Ten requests of 21 tokens: 10 first ones within 4 s (5 were predicted), and 200 in 20 s (25).
Case made_up() {
  Case made;
  made.whole.requests.resize(10);
  made.whole.totals.resize(1);
  auto& totals = made.whole.totals.front();
  totals.busy_seconds[at(Resource::compute)] = 18;
  totals.busy_seconds[at(Resource::send)] = 23;
  totals.bytes[at(Resource::send)] = 2048;
  totals.bytes[at(Resource::h2d)] = 4096;
  made.measured = {.requests = 10,
                   .prompt_tokens = 30,
                   .generated_tokens = 210,
                   .first_tokens = 10,
                   .seconds = 24,
                   .prefill_seconds = 4};
  made.predicted.seconds = 30;
  made.predicted.prefill_seconds = 5;
  made.predicted.generated_tokens = 210;
  made.predicted.stages.resize(1);
  auto& use = made.predicted.stages.front();
  use.busy_seconds[at(Resource::compute)] = 24;
  use.busy_seconds[at(Resource::send)] = 1;
  use.bytes[at(Resource::send)] = 2048;
  use.busy_seconds[at(Resource::h2d)] = 2;
  use.bytes[at(Resource::h2d)] = 8192;
  return made;
}

std::string table_of(const Case& made) {
  return format_comparison(made.whole, made.measured, made.predicted);
}

TEST(RunComparison, TimesAndRatesOfTheJob) {
  const auto text = table_of(made_up());
  EXPECT_THAT(text, ContainsRegex("  seconds +30 +24 +0.80\n"));
  EXPECT_THAT(text, ContainsRegex("seconds of prefill +5 +4 +0.80\n"));
  EXPECT_THAT(text, ContainsRegex("  generated tokens/s +7 +8.75 +1.25\n"));
  EXPECT_THAT(text, ContainsRegex("tokens/s of decoding +8 +10 +1.25\n"));
  EXPECT_THAT(text, Not(HasSubstr("max_new_tokens")));
}

// A send waits for the receiver, and a GPU does not tell how long its queues work: no times then.
TEST(RunComparison, TimesAndBytesOfAResource) {
  const auto text = table_of(made_up());
  EXPECT_THAT(text, ContainsRegex("stage 0 compute +24 +18 +0.75 +- +- +-\n"));
  EXPECT_THAT(text, ContainsRegex("stage 0 h2d +2 +- +- +8.00 KiB +4.00 KiB +0.50\n"));
  EXPECT_THAT(text, ContainsRegex("stage 0 send +- +- +- +2.00 KiB +2.00 KiB +1.00\n"));
  EXPECT_THAT(text, Not(HasSubstr("disk read")));
}

TEST(RunComparison, SaysWhenRequestsEndedEarly) {
  auto made = made_up();
  made.measured.generated_tokens = 209;
  EXPECT_THAT(table_of(made), HasSubstr("ended before their max_new_tokens"));
}

}  // namespace
}  // namespace stagecoach::cli
