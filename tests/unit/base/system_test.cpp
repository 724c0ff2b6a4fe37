#include "base/system.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <thread>
#include <vector>

#include "support/temp_folder.hpp"

namespace stagecoach {
namespace {

using testing::TempFolder;

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// Text by path, without a leading slash.
using Files = std::map<std::string, std::string>;

/// A tree of /proc and /sys files in a folder.
class FakeSystem {
 public:
  explicit FakeSystem(const Files& files) {
    for (const auto& [name, text] : files) {
      std::filesystem::create_directories(std::filesystem::path(folder_.file(name)).parent_path());
      static_cast<void>(folder_.write(name, text));
    }
  }

  [[nodiscard]] std::size_t available() const { return available_memory_bytes(folder_.path()); }

 private:
  TempFolder folder_;
};

constexpr const char* kMemInfo =
    "MemTotal:       2097152 kB\nMemFree:          10240 kB\nMemAvailable:   1048576 kB\n";

TEST(AvailableMemory, IsMemAvailableWithoutCgroups) {
  EXPECT_EQ(FakeSystem(Files{{"proc/meminfo", kMemInfo}}).available(), 1024 * kMiB);
  EXPECT_EQ(
      FakeSystem(Files{{"proc/meminfo", kMemInfo}, {"proc/self/cgroup", "0::/\n"}}).available(),
      1024 * kMiB);
}

TEST(AvailableMemory, HeedsAVersion2Limit) {
  const FakeSystem system({{"proc/meminfo", kMemInfo},
                           {"proc/self/cgroup", "0::/job/step\n"},
                           {"sys/fs/cgroup/job/step/memory.max", "536870912\n"},
                           {"sys/fs/cgroup/job/step/memory.current", "134217728\n"}});
  EXPECT_EQ(system.available(), 384 * kMiB);
}

TEST(AvailableMemory, TakesTheTightestLimitOnTheWayUp) {
  const FakeSystem system({{"proc/meminfo", kMemInfo},
                           {"proc/self/cgroup", "0::/job/step\n"},
                           {"sys/fs/cgroup/job/step/memory.max", "max\n"},
                           {"sys/fs/cgroup/job/step/memory.current", "1048576\n"},
                           {"sys/fs/cgroup/job/memory.max", "104857600\n"},
                           {"sys/fs/cgroup/job/memory.current", "4194304\n"},
                           {"sys/fs/cgroup/memory.max", "209715200\n"},
                           {"sys/fs/cgroup/memory.current", "5242880\n"}});
  EXPECT_EQ(system.available(), 96 * kMiB);
}

TEST(AvailableMemory, CountsPageCacheAsFree) {
  const FakeSystem version2({{"proc/meminfo", kMemInfo},
                             {"proc/self/cgroup", "0::/job\n"},
                             {"sys/fs/cgroup/job/memory.max", "524288000\n"},
                             {"sys/fs/cgroup/job/memory.current", "524288000\n"},
                             {"sys/fs/cgroup/job/memory.stat",
                              "anon 104857600\nfile 419430400\nshmem 1048576\n"
                              "inactive_anon 7\nactive_anon 8\n"
                              "inactive_file 314572800\nactive_file 94371840\n"}});
  EXPECT_EQ(version2.available(), 390 * kMiB);

  const FakeSystem version1({{"proc/meminfo", kMemInfo},
                             {"proc/self/cgroup", "5:cpu,cpuacct:/other\n4:memory:/job\n0::/\n"},
                             {"sys/fs/cgroup/memory/job/memory.limit_in_bytes", "524288000\n"},
                             {"sys/fs/cgroup/memory/job/memory.usage_in_bytes", "524288000\n"},
                             {"sys/fs/cgroup/memory/job/memory.stat",
                              "cache 419430400\ninactive_file 1\nactive_file 2\n"
                              "total_cache 419430400\ntotal_inactive_file 314572800\n"
                              "total_active_file 94371840\n"}});
  EXPECT_EQ(version1.available(), 390 * kMiB);
}

TEST(AvailableMemory, IsZeroPastTheLimit) {
  const FakeSystem system({{"proc/meminfo", kMemInfo},
                           {"proc/self/cgroup", "0::/job\n"},
                           {"sys/fs/cgroup/job/memory.max", "1000000\n"},
                           {"sys/fs/cgroup/job/memory.current", "1000001\n"}});
  EXPECT_EQ(system.available(), 0u);
}

/// Docker with version 1: the path is the host's, while the container sees only its own root.
TEST(AvailableMemory, FindsTheLimitOfAContainer) {
  const FakeSystem system({{"proc/meminfo", kMemInfo},
                           {"proc/self/cgroup", "4:memory:/docker/0123abcd\n"},
                           {"sys/fs/cgroup/memory/memory.limit_in_bytes", "209715200\n"},
                           {"sys/fs/cgroup/memory/memory.usage_in_bytes", "104857600\n"}});
  EXPECT_EQ(system.available(), 100 * kMiB);
}

TEST(AvailableMemory, IgnoresOtherControllersAndUnlimitedGroups) {
  const FakeSystem system(
      {{"proc/meminfo", kMemInfo},
       {"proc/self/cgroup", "9:memory_like:/small\n4:memory:/job\nnonsense\n3:memory:relative\n"},
       {"sys/fs/cgroup/memory/small/memory.limit_in_bytes", "1\n"},
       {"sys/fs/cgroup/memory/small/memory.usage_in_bytes", "1\n"},
       {"sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n"},
       {"sys/fs/cgroup/memory/job/memory.usage_in_bytes", "123456\n"}});
  EXPECT_EQ(system.available(), 1024 * kMiB);
}

TEST(AvailableMemory, OfThisMachineIsPlausible) {
  EXPECT_GT(available_memory_bytes(), 16 * kMiB);
  EXPECT_LT(available_memory_bytes(), std::size_t{1} << 50);
}

TEST(System, ListsTheCpusOfItsAffinityMask) {
  const auto before = usable_cpus();
  ASSERT_GE(before.size(), 1u);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(before.back(), &one);
  std::vector<int> bound;
  std::thread([&] {
    ::sched_setaffinity(0, sizeof(one), &one);
    bound = usable_cpus();
  }).join();
  EXPECT_EQ(bound, std::vector{before.back()});
}

TEST(System, KnowsItsName) { EXPECT_FALSE(host_name().empty()); }

TEST(System, PeakGrowsWithWhatIsTouched) {
  const auto before = peak_resident_bytes();
  const std::vector<char> memory(before + 64 * kMiB, 'x');
  EXPECT_GE(peak_resident_bytes(), before + 32 * kMiB);
  EXPECT_EQ(std::count(memory.begin(), memory.begin() + 10, 'x'), 10);
}

}  // namespace
}  // namespace stagecoach
