#include "base/staged_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/file.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::size_t files_in(const TempFolder& folder) {
  const std::filesystem::directory_iterator all(folder.path());
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(StagedFile, AppearsWhenCommitted) {
  const TempFolder folder;
  {
    StagedFile file(folder.file("model.h5"), false);
    EXPECT_FALSE(std::filesystem::exists(file.temporary_path()));
    EXPECT_EQ(std::filesystem::path(file.temporary_path()).parent_path(), folder.path());
    write_text(file.temporary_path(), "weights");
    EXPECT_FALSE(std::filesystem::exists(folder.file("model.h5")));
    file.commit();
  }
  EXPECT_EQ(read_text_file(folder.file("model.h5")), "weights");
  EXPECT_EQ(files_in(folder), 1u);
}

TEST(StagedFile, LeavesNothingWithoutCommit) {
  const TempFolder folder;
  {
    const StagedFile file(folder.file("model.h5"), false);
    write_text(file.temporary_path(), "half of the weights");
  }
  EXPECT_EQ(files_in(folder), 0u);
}

TEST(StagedFile, KeepsTheOldFileUntilCommitted) {
  const TempFolder folder;
  const auto path = folder.write("model.h5", "old");
  {
    const StagedFile file(path, true);
    write_text(file.temporary_path(), "half");
  }
  EXPECT_EQ(read_text_file(path), "old");
  StagedFile file(path, true);
  write_text(file.temporary_path(), "new");
  EXPECT_EQ(read_text_file(path), "old");
  file.commit();
  EXPECT_EQ(read_text_file(path), "new");
}

TEST(StagedFile, OverwritesOnlyOnDemand) {
  const TempFolder folder;
  const auto path = folder.write("model.h5", "old");
  try {
    const StagedFile file(path, false);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr(path), HasSubstr("--overwrite")));
  }
  EXPECT_EQ(read_text_file(path), "old");
}

TEST(StagedFile, NamesAFolderThatIsNotThere) {
  const TempFolder folder;
  try {
    const StagedFile file(folder.file("none/model.h5"), false);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no folder " + folder.file("none")));
  }
}

TEST(StagedFile, CommitWithoutAFileIsAnError) {
  const TempFolder folder;
  StagedFile file(folder.file("model.h5"), false);
  EXPECT_THROW(file.commit(), IoError);
}

TEST(StagedFile, CannotReplaceAFolder) {
  const TempFolder folder;
  std::filesystem::create_directories(folder.file("model.h5/inside"));
  StagedFile file(folder.file("model.h5"), true);
  write_text(file.temporary_path(), "weights");
  EXPECT_THROW(file.commit(), IoError);
}

}  // namespace
}  // namespace stagecoach
