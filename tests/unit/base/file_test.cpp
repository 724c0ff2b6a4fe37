#include "base/file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

#include "base/error.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

template <typename Work>
std::string io_error_of(const Work& work) {
  try {
    work();
  } catch (const IoError& error) {
    return error.what();
  }
  return "no error";
}

TEST(File, ReadsAndWritesAtOffsets) {
  const TempFolder folder;
  const File file(folder.file("data"), File::Mode::create);
  file.write_at(bytes_of("world"), 7);
  file.write_at(bytes_of("hello, "), 0);
  file.sync();
  EXPECT_EQ(file.size_bytes(), 12u);
  std::string part(6, ' ');
  file.read_at(std::as_writable_bytes(std::span(part)), 4);
  EXPECT_EQ(part, "o, wor");
  file.truncate_to(5);
  EXPECT_EQ(read_text_file(file.path()), "hello");
}

TEST(File, EndBeforeTheLastByteIsAnError) {
  const TempFolder folder;
  const File file(folder.write("data", "12345"), File::Mode::read);
  std::string part(4, ' ');
  EXPECT_NO_THROW(file.read_at(std::as_writable_bytes(std::span(part)), 1));
  const auto error = io_error_of([&] { file.read_at(std::as_writable_bytes(std::span(part)), 2); });
  EXPECT_THAT(error, HasSubstr(file.path()));
  EXPECT_THAT(error, HasSubstr("ends at byte 5, 1 more"));
}

TEST(File, CreateRefusesAnExistingFile) {
  const TempFolder folder;
  const auto path = folder.write("data", "old");
  EXPECT_THAT(io_error_of([&] { File(path, File::Mode::create); }),
              ::testing::AllOf(HasSubstr(path), HasSubstr("exists")));
  EXPECT_EQ(read_text_file(path), "old");
  File(path, File::Mode::truncate).write_at(bytes_of("n"), 0);
  EXPECT_EQ(read_text_file(path), "n");
}

TEST(File, NamesThePathItCannotOpen) {
  const TempFolder folder;
  EXPECT_THAT(io_error_of([&] { File(folder.file("none"), File::Mode::read); }),
              ::testing::AllOf(HasSubstr(folder.file("none")), HasSubstr("No such file")));
}

TEST(File, WritingToAReadOnlyDescriptorIsAnError) {
  const TempFolder folder;
  const File file(folder.write("data", "12345"), File::Mode::read);
  EXPECT_THAT(io_error_of([&] { file.write_at(bytes_of("x"), 0); }), HasSubstr(file.path()));
  EXPECT_THAT(io_error_of([&] { file.truncate_to(1); }), HasSubstr(file.path()));
}

/// /dev/full refuses as a full disk does.
TEST(File, FullDiskIsAnError) {
  const File file("/dev/full", File::Mode::truncate);
  EXPECT_THAT(io_error_of([&] { file.write_at(bytes_of("x"), 0); }),
              HasSubstr("cannot write /dev/full: No space left"));
}

TEST(File, MovesItsDescriptor) {
  const TempFolder folder;
  File first(folder.write("data", "12345"), File::Mode::read);
  const int descriptor = first.descriptor();
  File second(std::move(first));
  EXPECT_EQ(second.descriptor(), descriptor);
  {
    File third;
    third = std::move(second);
    EXPECT_EQ(third.size_bytes(), 5u);
  }
  EXPECT_EQ(::lseek(descriptor, 0, SEEK_CUR), -1) << "still open";
}

TEST(ReadTextFile, ReadsAllOfAFileOfAnyLength) {
  const TempFolder folder;
  for (const std::size_t length : {0, 1, 65535, 65536, 65537, 200000}) {
    std::string text(length, ' ');
    for (std::size_t i = 0; i < length; ++i) {
      text[i] = static_cast<char>(i * 31 % 256);
    }
    EXPECT_EQ(read_text_file(folder.write("data", text)), text) << length;
  }
}

TEST(ReadTextFile, RefusesAFolder) {
  const TempFolder folder;
  EXPECT_THAT(io_error_of([&] { read_text_file(folder.path()); }),
              ::testing::AllOf(HasSubstr(folder.path()), HasSubstr("directory")));
}

}  // namespace
}  // namespace stagecoach
