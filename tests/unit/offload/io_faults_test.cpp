#include "support/io_faults.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "offload/async_io.hpp"
#include "support/program.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::offload {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

testing::ProgramEnd probe(const std::string& backend, const std::vector<std::string>& settings) {
  const testing::TempFolder folder;
  auto end = testing::run_program(
      testing::with_io_faults(settings, {STAGECOACH_DISK_PROBE, folder.path(), backend}));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  return end;
}

class IoFaults : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (probe("uring", {}).exit_code != 0 && std::string(GetParam()) == "uring") {
      GTEST_SKIP() << "no io_uring here";
    }
  }
};

TEST_P(IoFaults, NoneByDefault) {
  const auto end = probe(GetParam(), {});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("same"));
}

TEST_P(IoFaults, TheChosenReadFails) {
  const auto end = probe(GetParam(), {"STAGECOACH_TEST_FAIL_READ=5"});
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("cannot read"));
  EXPECT_THAT(end.err, HasSubstr("Input/output error"));
}

TEST_P(IoFaults, TheChosenWriteFails) {
  const auto end =
      probe(GetParam(), {"STAGECOACH_TEST_FAIL_WRITE=16", "STAGECOACH_TEST_FAIL_ERRNO=28"});
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("cannot write"));
  EXPECT_THAT(end.err, HasSubstr("No space left on device: free space there"));
}

TEST_P(IoFaults, CountsTransfersOnly) {
  const auto end =
      probe(GetParam(), {"STAGECOACH_TEST_FAIL_READ=17", "STAGECOACH_TEST_FAIL_WRITE=17"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
}

TEST_P(IoFaults, SpillFilesCountWithoutDirectIo) {
  const auto end =
      probe(GetParam(), {"STAGECOACH_TEST_NO_DIRECT=1", "STAGECOACH_TEST_FAIL_WRITE=1"});
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.out, HasSubstr("program buffered"));
  EXPECT_THAT(end.out, HasSubstr("refuses direct I/O"));
}

TEST_P(IoFaults, EverythingRefusedStillWorks) {
  const auto end = probe(GetParam(), {"STAGECOACH_TEST_NO_DIRECT=1", "STAGECOACH_TEST_NO_TMPFILE=1",
                                      "STAGECOACH_TEST_NO_FALLOCATE=1"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("cannot reserve space"));
  EXPECT_THAT(end.out, HasSubstr("same"));
}

INSTANTIATE_TEST_SUITE_P(Backends, IoFaults, ::testing::Values("uring", "threads"),
                         [](const auto& info) { return std::string(info.param); });

TEST(IoFaultsUring, RefusedFallsBackToThreadsAndSaysWhy) {
  const auto end = probe("auto", {"STAGECOACH_TEST_NO_URING=1"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("4 threads (io_uring refused: Operation not permitted)\n"));
  EXPECT_THAT(end.out, HasSubstr("same"));
}

TEST(IoFaultsUring, RefusedIsAnErrorForOneWhoInsists) {
  const auto end = probe("uring", {"STAGECOACH_TEST_NO_URING=1"});
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_EQ(end.err, "io_uring refused: Operation not permitted\n");
}

}  // namespace
}  // namespace stagecoach::offload
