// 'stagecoach profile', alone and under mpiexec.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.hpp"
#include "base/system.hpp"
#include "plan/node_profile.hpp"
#include "support/program.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

class Profile : public ::testing::Test {
 protected:
  /// Runs the program on so many ranks; 0: without mpiexec.
  testing::ProgramEnd run(int ranks, const std::vector<std::string>& options) const {
    auto command = ranks > 0 ? testing::mpiexec(ranks) : std::vector<std::string>{};
    command.insert(command.end(), {STAGECOACH_PROGRAM, "profile", "--quick", "--threads", "1"});
    command.insert(command.end(), options.begin(), options.end());
    return testing::run_program(command);
  }
  std::string out() const { return folder_.file("profiles/here"); }
  std::string file() const { return out() + "/" + host_name() + ".ini"; }

  testing::TempFolder folder_;
};

/// Lines of the program itself: mpiexec has its own.
int complaints(const std::string& text) {
  int count = 0;
  for (auto at = text.find("stagecoach: "); at != std::string::npos;
       at = text.find("stagecoach: ", at + 1)) {
    ++count;
  }
  return count;
}

TEST_F(Profile, RanksOfOneMachineWriteOneFile) {
  const auto end = run(2, {"--out", out(), "--folder", folder_.path(), "--watts", "450"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const auto profile = plan::read_profile(file());
  EXPECT_EQ(profile.host, host_name());
  EXPECT_EQ(profile.stages, 2);
  EXPECT_EQ(profile.threads, 1);
  EXPECT_EQ(profile.watts, 450);
  EXPECT_EQ(profile.date.size(), 10u);
  EXPECT_GT(profile.disk_mem_bytes, 0u);
  EXPECT_FALSE(profile.disk.read.empty());
  EXPECT_GT(profile.local_link.bytes_per_second, 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out()), {}), 1);
  EXPECT_THAT(end.err, HasSubstr("profile: products, f16, width 64"));
}

TEST_F(Profile, OneProcessWritesOneToo) {
  const auto end =
      run(0, {"--out", out(), "--device", "host", "--device-mem", "1GiB", "--cpu-mem", "2GiB"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const auto profile = plan::read_profile(file());
  EXPECT_EQ(profile.stages, 1);
  EXPECT_EQ(profile.device_mem_bytes, std::size_t{1} << 30);
  EXPECT_EQ(profile.cpu_mem_bytes, std::size_t{2} << 30);
  EXPECT_EQ(profile.disk_mem_bytes, 0u);
  EXPECT_TRUE(profile.disk.read.empty());
}

TEST_F(Profile, AnExistingFileStays) {
  std::filesystem::create_directories(out());
  const auto path = folder_.write("profiles/here/" + host_name() + ".ini", "mine\n");
  const auto refused = run(2, {"--out", out()});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(complaints(refused.err), 1) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr(file() + " exists: pass --overwrite to replace it"));
  EXPECT_EQ(read_text_file(path), "mine\n");
  const auto replaced = run(0, {"--out", out(), "--overwrite"});
  EXPECT_EQ(replaced.exit_code, 0) << replaced.err;
  EXPECT_EQ(plan::read_profile(path).stages, 1);
}

TEST_F(Profile, BadOptionsAreOneLineAndExitCodeTwo) {
  struct Case {
    int ranks;
    std::vector<std::string> options;
    std::string message;
  };
  const auto nowhere = folder_.file("nowhere");
  const auto a_file = folder_.write("a_file", "");
  const std::vector<Case> cases = {
      {2, {"--out", out(), "--folder", nowhere}, "--folder " + nowhere + ": no file can be made"},
      {0, {}, "give --out DIR"},
      {0, {"--out", a_file + "/x"}, "--out " + a_file + "/x: no such folder can be made"},
      {0, {"--out", out(), "--seconds", "0"}, "--seconds 0: must be from 0.001 to 60"},
      {0, {"--out", out(), "--watts", "nan"}, "--watts nan: must be from 1"},
      {0, {"--out", out(), "--disk-mem", "1GiB"}, "--disk-mem needs --folder"},
      {0,
       {"--out", out(), "--device-mem", "2GiB", "--cpu-mem", "1GiB"},
       "--device-mem 2.00 GiB: without a GPU it is a part of --cpu-mem"},
      {0, {"--out", out(), "--device", "tpu"}, "--device tpu: must be host"},
      {0, {"--out", out(), "--spec", nowhere}, "--quick and --spec exclude each other"},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.message);
    const auto end = run(test.ranks, test.options);
    EXPECT_EQ(end.exit_code, 2);
    EXPECT_EQ(complaints(end.err), 1) << end.err;
    EXPECT_THAT(end.err, HasSubstr(test.message));
  }
  EXPECT_FALSE(std::filesystem::exists(file()));
}

}  // namespace
}  // namespace stagecoach
