#include "plan/node_profile.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace stagecoach::plan {
namespace {

/// Two stages of 4 threads on 8 cores, with rates that are easy to divide.
NodeProfile two_stages() {
  NodeProfile profile;
  profile.stages = 2;
  profile.threads = 4;
  profile.cores = 8;
  profile.device_mem_bytes = 1000;
  profile.cpu_mem_bytes = 3001;
  profile.pinned_mem_bytes = 2000;
  profile.disk_mem_bytes = 9000;
  profile.memory_bytes_per_second = 64;
  profile.copies = {10, 11, 12, 13, 14};
  profile.disk = {Curve({{1, 40}, {2, 80}}), Curve(20), 60};
  profile.formats[Packing::none] = {{{64, Curve({{1, 16}, {8, 160}})}}, 0};
  profile.formats[Packing::int4] = {{{64, Curve(32)}}, 24};
  profile.caches[device::KvType::f16] = {Curve(8), Curve(12), 4};
  profile.prompt_attention_flops = 28;
  profile.row_bytes_per_second = 36;
  profile.sampled_logits_per_second = 44;
  profile.step = {1, 2, 3, 4};
  profile.link = {1, 5};
  profile.local_link = {2, 6};
  return profile;
}

TEST(ForStages, FourStagesOfACpuNodeHaveHalfEach) {
  auto expected = two_stages();
  expected.stages = 4;
  expected.threads = 2;
  expected.device_mem_bytes = 500;
  expected.cpu_mem_bytes = 1500;
  expected.pinned_mem_bytes = 1000;
  expected.disk_mem_bytes = 4500;
  expected.disk = {Curve({{1, 20}, {2, 40}}), Curve(10), 30};
  expected.formats[Packing::none].products = {{64, Curve({{1, 8}, {8, 80}})}};
  expected.formats[Packing::int4] = {{{64, Curve(16)}}, 12};
  expected.caches[device::KvType::f16] = {Curve(4), Curve(6), 2};
  expected.prompt_attention_flops = 14;
  expected.row_bytes_per_second = 18;
  expected.sampled_logits_per_second = 22;
  EXPECT_EQ(for_stages(two_stages(), 4), expected);
}

TEST(ForStages, WithGpusOnlyWhatTheCpuDoesIsShared) {
  auto profile = two_stages();
  profile.gpu = true;
  auto expected = profile;
  expected.stages = 1;
  expected.threads = 8;
  expected.cpu_mem_bytes = 6002;
  expected.pinned_mem_bytes = 4000;
  expected.disk_mem_bytes = 18000;
  expected.disk = {Curve({{1, 80}, {2, 160}}), Curve(40), 120};
  expected.caches[device::KvType::f16] = {Curve(8), Curve(24), 8};
  EXPECT_EQ(for_stages(profile, 1), expected);
}

TEST(ForStages, AsManyAsMeasuredIsTheSame) {
  auto profile = two_stages();
  profile.threads = 7;  // 14 on 8 cores
  EXPECT_EQ(for_stages(profile, 2), profile);
}

TEST(ForStages, ThreadsAreWholeAndAtLeastOne) {
  // 8 threads for 3 stages: 2 each instead of 4.
  EXPECT_EQ(for_stages(two_stages(), 3).threads, 2);
  EXPECT_EQ(for_stages(two_stages(), 3).prompt_attention_flops, 14);
  // For 100 stages: one each, a quarter of what a stage had.
  EXPECT_EQ(for_stages(two_stages(), 100).threads, 1);
  EXPECT_EQ(for_stages(two_stages(), 100).prompt_attention_flops, 7);
  EXPECT_EQ(for_stages(two_stages(), 100).cpu_mem_bytes, 60u);  // 60.02
}

TEST(ForStages, CoresThatWereIdleStayIdle) {
  auto profile = two_stages();
  profile.threads = 2;
  EXPECT_EQ(for_stages(profile, 1).threads, 4);
  profile.cores = 3;  // 4 threads on 3 cores
  EXPECT_EQ(for_stages(profile, 1).threads, 3);
  EXPECT_EQ(for_stages(profile, 1).prompt_attention_flops, 42);
}

TEST(ForStages, SharesOfLargeSizesAreExact) {
  auto profile = two_stages();
  profile.stages = 10000;
  profile.cpu_mem_bytes = 999999999999999;
  EXPECT_EQ(for_stages(profile, 3).cpu_mem_bytes, 3333333333333330000u);
  EXPECT_EQ(for_stages(profile, 9999).cpu_mem_bytes, 1000100010000999u);
}

TEST(ForStages, ANodeWithoutADiskStaysOne) {
  auto profile = two_stages();
  profile.disk = {};
  EXPECT_TRUE(for_stages(profile, 4).disk.read.empty());
}

TEST(ForStages, RefusesNoStages) { EXPECT_THROW(for_stages(two_stages(), 0), InternalError); }

}  // namespace
}  // namespace stagecoach::plan
