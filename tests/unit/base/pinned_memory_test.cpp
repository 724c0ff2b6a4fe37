#include "base/pinned_memory.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <string>
#include <utility>

#include "base/aligned_memory.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach {
namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kKiB = 1024;
constexpr std::size_t kLimit = 256 * kKiB;

// The sanitizers turn mlock into nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLocksAreReal = false;
#else
constexpr bool kLocksAreReal = true;
#endif

/// Runs `check` in a child that may lock kLimit bytes and has no privileges. It returns 0 or the
/// number of what went wrong; -1: no such child can be made here.
template <typename Check>
int in_limited_child(Check check) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{kLimit, kLimit};
    const bool limited = ::setrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
                         (::geteuid() != 0 || (::setgid(65534) == 0 && ::setuid(65534) == 0));
    ::_exit(limited ? check() : 255);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
    return 254;
  }
  return WEXITSTATUS(status) == 255 ? -1 : WEXITSTATUS(status);
}

int check_limit() {
  const AlignedMemory small(128 * kKiB, "a test");
  const AlignedMemory large(257 * kKiB, "a test");
  const auto before = lockable_bytes();
  if (before > kLimit || before < 128 * kKiB) {
    return 1;
  }
  {
    const auto lock = MemoryLock::try_lock(small.bytes());
    if (!lock || lock->size_bytes() != 128 * kKiB) {
      return 2;
    }
    if (lockable_bytes() != before - 128 * kKiB) {
      return 3;
    }
    if (MemoryLock::try_lock(large.bytes())) {
      return 4;
    }
  }
  return lockable_bytes() == before ? 0 : 5;
}

int check_moves() {
  const AlignedMemory memory(64 * kKiB, "a test");
  const auto before = lockable_bytes();
  auto lock = MemoryLock::try_lock(memory.bytes());
  if (!lock) {
    return 1;
  }
  {
    const MemoryLock moved(std::move(*lock));
    lock.reset();
    if (lockable_bytes() != before - 64 * kKiB) {
      return 2;
    }
  }
  return lockable_bytes() == before ? 0 : 3;
}

TEST(MemoryLock, KeepsToTheLimit) {
  if (!kLocksAreReal) {
    GTEST_SKIP() << "a sanitizer makes locks do nothing";
  }
  const int result = in_limited_child(check_limit);
  if (result < 0) {
    GTEST_SKIP() << "privileges cannot be dropped here";
  }
  EXPECT_EQ(result, 0);
}

TEST(MemoryLock, Moves) {
  if (!kLocksAreReal) {
    GTEST_SKIP() << "a sanitizer makes locks do nothing";
  }
  const int result = in_limited_child(check_moves);
  if (result < 0) {
    GTEST_SKIP() << "privileges cannot be dropped here";
  }
  EXPECT_EQ(result, 0);
}

TEST(MemoryLock, OfNothingSucceeds) { EXPECT_TRUE(MemoryLock::try_lock({}).has_value()); }

/// lockable_bytes with the limit lowered to kLimit and the given files of /proc/self.
class FakeProcess {
 public:
  FakeProcess(const std::string& status, const std::string& uid_map) {
    std::filesystem::create_directories(
        std::filesystem::path(folder_.file("proc/self/x")).parent_path());
    static_cast<void>(folder_.write("proc/self/status", status));
    static_cast<void>(folder_.write("proc/self/uid_map", uid_map));
  }

  [[nodiscard]] std::size_t lockable() const {
    rlimit before{};
    ::getrlimit(RLIMIT_MEMLOCK, &before);
    const rlimit limit{kLimit, before.rlim_max};
    ::setrlimit(RLIMIT_MEMLOCK, &limit);
    const auto result = lockable_bytes(folder_.path());
    ::setrlimit(RLIMIT_MEMLOCK, &before);
    return result;
  }

 private:
  testing::TempFolder folder_;
};

constexpr const char* kFirstNamespace = "         0          0 4294967295\n";
constexpr const char* kWithCapability = "Name:\tx\nVmLck:\t      8 kB\nCapEff:\t0000000000004000\n";
constexpr const char* kWithout = "Name:\tx\nVmLck:\t      8 kB\nCapEff:\t00000000a80425fb\n";

TEST(LockableBytes, IsWhatTheLimitLeaves) {
  EXPECT_EQ(FakeProcess(kWithout, kFirstNamespace).lockable(), kLimit - 8 * kKiB);
  EXPECT_EQ(FakeProcess("VmLck:\t 1000000 kB\n", kFirstNamespace).lockable(), 0u);
}

TEST(LockableBytes, HeedsTheCapabilityInTheFirstUserNamespace) {
  EXPECT_EQ(FakeProcess(kWithCapability, kFirstNamespace).lockable(), kUnlimited);
  EXPECT_EQ(FakeProcess(kWithCapability, "0 1000 1\n").lockable(), kLimit - 8 * kKiB);
}

}  // namespace
}  // namespace stagecoach
