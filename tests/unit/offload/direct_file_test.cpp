#include "offload/direct_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::offload {
namespace {

TEST(DirectFile, SaysWhatItOpened) {
  const testing::TempFolder folder;
  const auto path = folder.write("weights", std::string(10000, 'x'));
  const auto file = DirectFile::open_for_reading(path);
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(file.size_bytes(), 10000u);
  EXPECT_EQ((::fcntl(file.descriptor(), F_GETFL) & O_DIRECT) != 0, file.direct());
}

TEST(DirectFile, OpensBufferedWhereDirectIsRefused) {
  const auto file = DirectFile::open_for_reading("/proc/version");
  EXPECT_FALSE(file.direct());
  EXPECT_GE(file.descriptor(), 0);
}

TEST(DirectFile, AMissingFileIsNamed) {
  try {
    DirectFile::open_for_reading("/nowhere/weights");
    FAIL() << "opened";
  } catch (const IoError& error) {
    EXPECT_STREQ(error.what(), "cannot open /nowhere/weights: No such file or directory");
  }
}

TEST(DirectFile, MovesAndCloses) {
  int descriptor = -1;
  {
    auto first = DirectFile::open_for_reading("/proc/version");
    descriptor = first.descriptor();
    DirectFile second(std::move(first));
    EXPECT_EQ(second.descriptor(), descriptor);
    auto third = DirectFile::open_for_reading("/proc/self/exe");
    third = std::move(second);
    EXPECT_EQ(third.descriptor(), descriptor);
    EXPECT_EQ(third.path(), "/proc/version");
  }
  EXPECT_EQ(::fcntl(descriptor, F_GETFD), -1);
}

}  // namespace
}  // namespace stagecoach::offload
