#include "stage/policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/error.hpp"

namespace stagecoach::stage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("\n")));
    return error.what();
  }
  return "accepted";
}

std::string refusal(const std::function<void(Policy&)>& spoil) {
  Policy policy;
  policy.offload_dir = "/scratch";
  spoil(policy);
  return error_of([&] { validate(policy); });
}

TEST(Percent, SixNumbersInFlexGensOrder) {
  const auto percent = parse_percent("20 80 0 100 30.5 60", "--percent");
  EXPECT_EQ(percent, (Percent{20, 80, 0, 100, 30.5, 60}));
  EXPECT_DOUBLE_EQ(percent.weights().device, 0.2);
  EXPECT_DOUBLE_EQ(percent.weights().cpu, 0.8);
  EXPECT_DOUBLE_EQ(percent.cache().cpu, 1);
  EXPECT_NEAR(percent.hidden().disk(), 0.095, 1e-12);
}

TEST(Percent, BlanksDoNotCount) {
  EXPECT_EQ(parse_percent("  1 2\t3  4 5 6 ", "--percent"), (Percent{1, 2, 3, 4, 5, 6}));
}

TEST(Percent, AnythingButSixNumbersIsRefused) {
  for (const auto* text :
       {"", "20", "1 2 3 4 5", "1 2 3 4 5 6 7", "1,2,3,4,5,6", "1 2 3 4 5 x", "1 2 3 4 5 6x",
        "1 2 3 4 5 6 x", "1 2 3 4 5 6 -", "1 2 3 4 5 6 .", "1 2 3 4 5 6 1e", "1 2 3 4 5 nan",
        "1 2 3 4 5 1e999", "20% 80% 0 100 100 0"}) {
    EXPECT_THAT(error_of([&] { parse_percent(text, "here: percent"); }),
                AllOf(HasSubstr("here: percent"), HasSubstr("six numbers")))
        << text;
  }
}

TEST(Percent, ItsTextIsReadBackExactly) {
  for (const double number : {0.0, 33.333, 100.0 / 3, 1e-7, 99.99999999999999, 0.1}) {
    const Percent percent{number, 100 - number, number, number / 7, 0, number};
    EXPECT_EQ(parse_percent(format_percent(percent), "--percent"), percent) << number;
  }
}

TEST(Policy, AcceptsWhatNeedsNoDisk) {
  EXPECT_EQ(error_of([] { validate(Policy{}); }), "accepted");
  EXPECT_EQ(refusal([](Policy& p) { p.percent = {33.333, 66.667, 10, 90, 0.1, 99.9}; }),
            "accepted");
}

TEST(Policy, EachPairIsCheckedAndNamed) {
  EXPECT_THAT(refusal([](Policy& p) { p.percent.weights_device = -1; }), HasSubstr("weights"));
  EXPECT_THAT(refusal([](Policy& p) { p.percent.cache_cpu = 101; }), HasSubstr("cache"));
  EXPECT_THAT(refusal([](Policy& p) { p.percent.hidden_cpu = 1; }), HasSubstr("activations"))
      << "100 on the device and 1 on the CPU";
  EXPECT_THAT(refusal([](Policy& p) { p.percent.cache_device = std::nan(""); }),
              HasSubstr("cache"));
  EXPECT_THAT(
      refusal([](Policy& p) { p.percent.weights_cpu = std::numeric_limits<double>::infinity(); }),
      HasSubstr("weights"));
}

TEST(Policy, CacheOrActivationsOnDiskNeedAFolder) {
  for (const auto& percent : {Percent{100, 0, 50, 40, 100, 0}, {100, 0, 100, 0, 50, 40}}) {
    const auto message = refusal([&](Policy& p) {
      p.percent = percent;
      p.offload_dir.clear();
    });
    EXPECT_THAT(message, AllOf(HasSubstr("--offload-dir"), HasSubstr("--percent")));
    EXPECT_EQ(refusal([&](Policy& p) { p.percent = percent; }), "accepted");
  }
}

TEST(Policy, WeightsOnDiskStayInTheStoreAndNeedNoFolder) {
  EXPECT_EQ(refusal([](Policy& p) {
              p.percent = {0, 0, 100, 0, 100, 0};
              p.offload_dir.clear();
            }),
            "accepted");
}

TEST(Policy, WeightBuffersHaveARange) {
  for (const std::int64_t buffers : {0, 1, 64}) {
    EXPECT_EQ(refusal([&](Policy& p) { p.weight_buffers = buffers; }), "accepted");
  }
  for (const std::int64_t buffers : {-1, 65}) {
    EXPECT_THAT(refusal([&](Policy& p) { p.weight_buffers = buffers; }),
                HasSubstr("--weight-buffers"));
  }
}

TEST(ScheduleKind, NamesAreReadBack) {
  for (const auto kind :
       {ScheduleKind::rolling, ScheduleKind::zigzag, ScheduleKind::row, ScheduleKind::flexgen}) {
    EXPECT_EQ(parse_schedule(to_string(kind), "--schedule"), kind);
  }
  EXPECT_THAT(error_of([] { parse_schedule("zig-zag", "--schedule"); }),
              AllOf(HasSubstr("--schedule zig-zag"), HasSubstr("rolling, zigzag, row, flexgen")));
}

}  // namespace
}  // namespace stagecoach::stage
