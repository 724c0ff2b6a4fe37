#include "offload/spill_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/error.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::offload {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;

// A small file system of its own, where the tests may mount one.
class Mount {
 public:
  explicit Mount(const char* type, unsigned long flags = 0, const char* options = "size=4m")
      : mounted_(::mount("stagecoach-test", folder_.path().c_str(), type, flags, options) == 0) {}
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;
  Mount(Mount&&) = delete;
  Mount& operator=(Mount&&) = delete;
  ~Mount() {
    if (mounted_) {
      ::umount(folder_.path().c_str());
    }
  }
  [[nodiscard]] bool mounted() const { return mounted_; }
  [[nodiscard]] const std::string& path() const { return folder_.path(); }

 private:
  testing::TempFolder folder_;
  bool mounted_;
};

template <typename Error>
std::string refusal(const std::string& folder, std::uint64_t size_bytes) {
  try {
    make_spill_file(folder, size_bytes);
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(SpillFile, TakesItsSpaceAndHasNoName) {
  const testing::TempFolder folder;
  const auto spill = make_spill_file(folder.path(), 3 * kMiB);
  struct stat info {};
  ASSERT_EQ(::fstat(spill.file.descriptor(), &info), 0);
  EXPECT_EQ(info.st_nlink, 0u);
  EXPECT_EQ(spill.file.size_bytes(), 3 * kMiB);
  if (spill.notes.empty()) {
    EXPECT_GE(static_cast<std::uint64_t>(info.st_blocks) * 512, 3 * kMiB);
    EXPECT_TRUE(spill.file.direct());
    EXPECT_NE(::fcntl(spill.file.descriptor(), F_GETFL) & O_DIRECT, 0);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(spill.file.path(), HasSubstr(folder.path()));
}

TEST(SpillFile, MayBeEmpty) {
  const testing::TempFolder folder;
  EXPECT_EQ(make_spill_file(folder.path(), 0).file.size_bytes(), 0u);
}

TEST(SpillFile, GivesItsSpaceBack) {
  const Mount mount("tmpfs");
  if (!mount.mounted()) {
    GTEST_SKIP() << "may not mount";
  }
  const auto before = free_disk_bytes(mount.path());
  {
    const auto spill = make_spill_file(mount.path(), 2 * kMiB);
    EXPECT_EQ(free_disk_bytes(mount.path()), before - 2 * kMiB);
  }
  EXPECT_EQ(free_disk_bytes(mount.path()), before);
}

TEST(SpillFile, AFullDiskIsTooLittleMemory) {
  const Mount mount("tmpfs");
  if (!mount.mounted()) {
    GTEST_SKIP() << "may not mount";
  }
  EXPECT_THAT(refusal<OutOfMemory>(mount.path(), 8 * kMiB),
              AllOf(HasSubstr("--offload-dir " + mount.path()), HasSubstr("8.00 MiB"),
                    HasSubstr("4.00 MiB are free"), HasSubstr("No space left on device"),
                    HasSubstr("lower --disk-mem or choose another folder")));
  EXPECT_TRUE(std::filesystem::is_empty(mount.path()));
}

TEST(SpillFile, NoDiskHasAnExbibyte) {
  const testing::TempFolder folder;
  EXPECT_THAT(refusal<OutOfMemory>(folder.path(), std::uint64_t{1} << 60), HasSubstr("--disk-mem"));
}

// ramfs knows neither fallocate nor O_DIRECT, and calls itself full.
TEST(SpillFile, WithoutFallocateTheFreeSpaceIsLookedUp) {
  const Mount mount("ramfs", 0, "");
  if (!mount.mounted()) {
    GTEST_SKIP() << "may not mount";
  }
  EXPECT_THAT(refusal<OutOfMemory>(mount.path(), kMiB), HasSubstr("0 B are free"));
  const auto spill = make_spill_file(mount.path(), 0);
  EXPECT_FALSE(spill.file.direct());
  EXPECT_THAT(spill.notes, ::testing::ElementsAre(HasSubstr("refuses direct I/O")));
}

TEST(SpillFile, AMissingFolderIsNamed) {
  EXPECT_EQ(refusal<ConfigError>("/nowhere/scratch", kMiB),
            "--offload-dir /nowhere/scratch: no file can be made there: No such file or directory");
}

TEST(SpillFile, AFileIsNoFolder) {
  const testing::TempFolder folder;
  const auto path = folder.write("file", "x");
  EXPECT_THAT(refusal<ConfigError>(path, kMiB),
              AllOf(HasSubstr("--offload-dir " + path), HasSubstr("Not a directory")));
}

TEST(SpillFile, AReadOnlyFileSystemIsNamed) {
  const Mount mount("tmpfs", MS_RDONLY);
  if (!mount.mounted()) {
    GTEST_SKIP() << "may not mount";
  }
  EXPECT_THAT(refusal<ConfigError>(mount.path(), kMiB), HasSubstr("Read-only file system"));
}

}  // namespace
}  // namespace stagecoach::offload
