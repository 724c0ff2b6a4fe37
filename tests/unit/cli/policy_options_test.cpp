#include "cli/policy_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "cli/run_options.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::cli {
namespace {

using stage::Percent;
using stage::Policy;
using stage::Switch;
using stagecoach::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<Policy> policies(const std::vector<std::string>& arguments, int stages = 1) {
  auto described = policy_options();
  described.add_options()("config", po::value<std::string>(), "ini file")(
      "model", po::value<std::string>(), "an option of others");
  return read_policies(parse_options("try", "usage: stagecoach try", described, arguments).value(),
                       stages);
}

Policy policy(const std::vector<std::string>& arguments) {
  const auto found = policies(arguments);
  EXPECT_EQ(found.size(), 1u);
  return found.front();
}

std::string refusal(const std::vector<std::string>& arguments, int stages = 1) {
  try {
    policies(arguments, stages);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("\n")));
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

/// Every setting of a policy, each different from its default.
constexpr const char* kAllSettings =
    "percent = 20 80 0 50 30 70\n"
    "device-mem = 16GiB\n"
    "cpu-mem = 64GiB\n"
    "pinned-mem = 32GiB\n"
    "disk-mem = 1TiB\n"
    "offload-dir = /scratch\n"
    "pin-weights = on\n"
    "cpu-attention = off\n"
    "widen-weights = on\n"
    "weight-buffers = 3\n";

Policy all_settings() {
  Policy policy;
  policy.percent = {20, 80, 0, 50, 30, 70};
  policy.device_mem_bytes = std::size_t{16} << 30;
  policy.cpu_mem_bytes = std::size_t{64} << 30;
  policy.pinned_mem_bytes = std::size_t{32} << 30;
  policy.disk_mem_bytes = std::size_t{1} << 40;
  policy.offload_dir = "/scratch";
  policy.pin_weights = Switch::on;
  policy.cpu_attention = Switch::off;
  policy.widen_weights = Switch::on;
  policy.weight_buffers = 3;
  return policy;
}

TEST(PolicyOptions, WithoutFlagsAllIsOnTheDevice) { EXPECT_EQ(policy({}), Policy{}); }

TEST(PolicyOptions, EveryFlagHasItsField) {
  EXPECT_EQ(policy({"--percent", "20",
                    "80",        "0",
                    "50",        "30",
                    "70",        "--device-mem",
                    "16GiB",     "--cpu-mem",
                    "64GiB",     "--pinned-mem",
                    "32GiB",     "--disk-mem",
                    "1TiB",      "--offload-dir",
                    "/scratch",  "--pin-weights",
                    "on",        "--cpu-attention",
                    "off",       "--widen-weights",
                    "on",        "--weight-buffers",
                    "3"}),
            all_settings());
}

TEST(PolicyOptions, EveryFlagMayComeFromTheConfigFile) {
  const TempFolder folder;
  EXPECT_EQ(policy({"--config", folder.write("job.ini", kAllSettings)}), all_settings());
}

TEST(PolicyOptions, PercentEndsWhereTheNextOptionBegins) {
  const std::vector<std::string> arguments = {
      "--percent", "20", "80", "0", "100", "100", "0", "--model", "m", "--weight-buffers", "2"};
  EXPECT_EQ(policy(arguments).percent, (Percent{20, 80, 0, 100, 100, 0}));
  EXPECT_EQ(policy(arguments).weight_buffers, 2);
}

TEST(PolicyOptions, PercentMayBeOneWord) {
  EXPECT_EQ(policy({"--percent", "20 80 0 100 100 0"}).percent, (Percent{20, 80, 0, 100, 100, 0}));
  EXPECT_EQ(policy({"--percent=33.333 66.667 0 100 100 0"}).percent.weights_device, 33.333);
}

TEST(PolicyOptions, TheCommandLinesPercentWinsOverTheFiles) {
  const TempFolder folder;
  const auto ini = folder.write("job.ini", "percent = 20 80 0 100 100 0\n");
  EXPECT_EQ(policy({"--config", ini, "--percent", "1", "99", "0", "100", "100", "0"})
                .percent.weights_device,
            1);
}

TEST(PolicyOptions, PercentIsSixNumbers) {
  EXPECT_THAT(refusal({"--percent", "20", "80"}),
              AllOf(HasSubstr("--percent 20 80"), HasSubstr("six numbers")));
  EXPECT_THAT(refusal({"--percent", "1", "2", "3", "4", "5", "6", "7"}), HasSubstr("six numbers"));
  EXPECT_THAT(refusal({"--percent", "a", "b", "c", "d", "e", "f"}), HasSubstr("six numbers"));
  EXPECT_THAT(refusal({"--percent"}), HasSubstr("--percent"));
}

TEST(PolicyOptions, SharesAddUpToAHundredAtMost) {
  EXPECT_THAT(refusal({"--percent", "60", "50", "0", "100", "100", "0"}), HasSubstr("weights"));
}

TEST(PolicyOptions, CacheOnDiskNeedsAFolder) {
  EXPECT_THAT(refusal({"--percent", "100", "0", "0", "50", "100", "0"}),
              HasSubstr("--offload-dir"));
}

TEST(PolicyOptions, BadValuesNameTheirFlag) {
  for (const std::string flag : {"--device-mem", "--cpu-mem", "--pinned-mem", "--disk-mem"}) {
    EXPECT_THAT(refusal({flag, "much"}), AllOf(HasSubstr(flag + " much"), HasSubstr("size")));
  }
  for (const std::string flag : {"--pin-weights", "--cpu-attention"}) {
    EXPECT_THAT(refusal({flag, "yes"}), HasSubstr(flag + " yes: must be on, off or auto"));
  }
  EXPECT_THAT(refusal({"--weight-buffers", "two"}), HasSubstr("--weight-buffers two"));
  EXPECT_THAT(refusal({"--weight-buffers", "-1"}), HasSubstr("--weight-buffers"));
  EXPECT_THAT(refusal({"--weight-buffers", "65"}), HasSubstr("--weight-buffers"));
  EXPECT_THAT(refusal({"--weight-buffers", "18446744073709551615"}), HasSubstr("--weight-buffers"));
}

TEST(StagePolicy, OneFileHoldsEverySetting) {
  const TempFolder folder;
  const auto found = policies({"--stage-policy", folder.write("a.ini", kAllSettings)}, 4);
  ASSERT_EQ(found.size(), 1u) << "one for all stages";
  EXPECT_EQ(found.front(), all_settings());
}

TEST(StagePolicy, AFileAStage) {
  const TempFolder folder;
  const auto files = folder.write("a.ini", "percent = 10 90 0 100 100 0") + "," +
                     folder.write("b.ini", "percent = 30 70 0 100 100 0");
  const auto found = policies({"--stage-policy", files}, 2);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].percent.weights_device, 10);
  EXPECT_EQ(found[1].percent.weights_device, 30);
}

TEST(StagePolicy, ASectionAStage) {
  const TempFolder folder;
  const auto file = folder.write("all.ini",
                                 "[first]\npercent = 10 90 0 100 100 0\n"
                                 "[middle]\n"
                                 "[last]\nweight-buffers = 1\n");
  const auto found = policies({"--stage-policy", file}, 3);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].percent.weights_device, 10);
  EXPECT_EQ(found[1], Policy{});
  EXPECT_EQ(found[2].weight_buffers, 1);
}

TEST(StagePolicy, FlagsHoldForTheStagesThatSayNothingElse) {
  const TempFolder folder;
  const auto file = folder.write("all.ini", "[a]\ncpu-mem = 1GiB\n[b]\n");
  const auto found =
      policies({"--cpu-mem", "2GiB", "--pin-weights", "off", "--stage-policy", file}, 2);
  EXPECT_EQ(found[0].cpu_mem_bytes, std::size_t{1} << 30);
  EXPECT_EQ(found[1].cpu_mem_bytes, std::size_t{2} << 30);
  EXPECT_EQ(found[0].pin_weights, Switch::off);
}

TEST(StagePolicy, FlagsAndFileAreCheckedTogether) {
  const TempFolder folder;
  const auto file = folder.write("a.ini", "offload-dir = /scratch\n");
  EXPECT_EQ(policies({"--percent", "0", "0", "0", "0", "0", "0", "--stage-policy", file}).size(),
            1u);
  const auto disk = folder.write("b.ini", "percent = 100 0 0 0 100 0\n");
  EXPECT_THAT(refusal({"--stage-policy", disk}), HasSubstr("--offload-dir"));
}

TEST(StagePolicy, ThereIsOnePolicyOrOneAStage) {
  const TempFolder folder;
  const auto file = folder.write("all.ini", "[a]\n[b]\n");
  EXPECT_THAT(refusal({"--stage-policy", file}, 3), HasSubstr("2 policies for 3 stages"));
  EXPECT_THAT(refusal({"--stage-policy", file + "," + file}, 3),
              HasSubstr("4 policies for 3 stages"));
  EXPECT_THAT(refusal({"--stage-policy", ""}, 1), HasSubstr("--stage-policy"));
}

TEST(StagePolicy, MistakesNameFileAndSection) {
  const TempFolder folder;
  const auto unknown = folder.write("a.ini", "[one]\nschedule = row\n");
  EXPECT_THAT(refusal({"--stage-policy", unknown}),
              AllOf(HasSubstr(unknown + " [one]"), HasSubstr("schedule"), HasSubstr("cpu-mem")));
  const auto value = folder.write("b.ini", "percent = 1 2 3\n");
  EXPECT_THAT(refusal({"--stage-policy", value}),
              AllOf(HasSubstr(value + ": percent"), HasSubstr("six numbers")));
  EXPECT_THAT(refusal({"--stage-policy", "/nowhere.ini"}), HasSubstr("no file /nowhere.ini"));
}

TEST(JobFile, HasASectionAStage) {
  const TempFolder folder;
  const auto ini = folder.write("job.ini",
                                "cpu-mem = 2GiB\npin-weights = off\n"
                                "[stage 0: the large disk]\npercent = 10 90 0 100 100 0\n"
                                "[stage 1]\ncpu-mem = 1GiB\nweight-buffers = 1\n");
  const auto found = policies({"--config", ini}, 2);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].percent, (Percent{10, 90, 0, 100, 100, 0}));
  EXPECT_EQ(found[0].cpu_mem_bytes, std::size_t{2} << 30);
  EXPECT_EQ(found[1].cpu_mem_bytes, std::size_t{1} << 30);
  EXPECT_EQ(found[1].weight_buffers, 1);
  EXPECT_EQ(found[1].percent, Percent{});
  EXPECT_EQ(found[1].pin_weights, Switch::off);
}

TEST(JobFile, TheCommandLineWinsOverItsSections) {
  const TempFolder folder;
  const auto ini =
      folder.write("job.ini", "[stage 0]\nweight-buffers = 1\n[stage 1]\nweight-buffers = 2\n");
  const auto found = policies({"--config", ini, "--weight-buffers", "3"}, 2);
  EXPECT_EQ(found[0].weight_buffers, 3);
  EXPECT_EQ(found[1].weight_buffers, 3);
}

TEST(JobFile, MistakesInItsSections) {
  const TempFolder folder;
  const auto two = folder.write("two.ini", "[stage 0]\n[stage 1]\n");
  EXPECT_THAT(refusal({"--config", two}, 3), HasSubstr("two.ini: 2 policies for 3 stages"));
  EXPECT_THAT(refusal({"--config", two, "--stage-policy", two}, 2),
              AllOf(HasSubstr("--stage-policy"), HasSubstr("exclude each other")));
  const auto one = folder.write("one.ini", "[stage 0]\n");
  EXPECT_THAT(refusal({"--config", one}, 3), HasSubstr("1 policies for 3 stages"));
  const auto order = folder.write("order.ini", "[stage 1]\n[stage 0]\n");
  EXPECT_THAT(refusal({"--config", order}, 2),
              AllOf(HasSubstr("order.ini line 1: [stage 1]"), HasSubstr("must be [stage 0]")));
  const auto ten = folder.write("ten.ini", "[stage 0]\n[stage 10]\n");
  EXPECT_THAT(refusal({"--config", ten}, 2), HasSubstr("must be [stage 1]"));
  const auto key = folder.write("key.ini", "[stage 0]\nschedule = row\n");
  EXPECT_THAT(refusal({"--config", key}),
              AllOf(HasSubstr("key.ini [stage 0]"), HasSubstr("schedule is no part")));
}

TEST(RunOptions, TakeScheduleOverlapAndAPolicyAStage) {
  const TempFolder folder;
  const auto file = folder.write("all.ini", "[a]\nweight-buffers = 1\n[b]\nweight-buffers = 2\n");
  const std::vector<std::string> least = {"--model", "m.h5", "--prompts", "p", "--output", "o"};
  auto arguments = least;
  for (const auto* more :
       {"--stages", "2", "--stage-policy", file.c_str(), "--schedule", "flexgen", "--no-overlap"}) {
    arguments.emplace_back(more);
  }
  const auto config = read_run_options(arguments, 1).value();
  EXPECT_EQ(config.schedule, stage::ScheduleKind::flexgen);
  EXPECT_FALSE(config.overlap);
  EXPECT_EQ(config.policy(0).weight_buffers, 1);
  EXPECT_EQ(config.policy(1).weight_buffers, 2);
  EXPECT_TRUE(read_run_options(least, 1).value().overlap);
  arguments.emplace_back("--schedule");
  arguments.emplace_back("column");
  EXPECT_THROW(read_run_options(arguments, 1), ConfigError);
}

}  // namespace
}  // namespace stagecoach::cli
