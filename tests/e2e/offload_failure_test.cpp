// What goes wrong with disks, folders, locked memory and budgets: refused at the start with numbers
// and flags, or ended soon with one line; results whole, and nothing left in the offload folder.

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "e2e/tiny_opt.hpp"
#include "e2e/whole_jobs.hpp"
#include "support/io_faults.hpp"
#include "support/named_flags.hpp"
#include "support/program.hpp"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using testing::lines_with;
using ::testing::Not;
using testing::Program;
using testing::ProgramEnd;
using testing::SmallDisk;
using testing::TinyOpt;
using testing::Words;
using testing::operator+;

constexpr int kRequests = 12;

const Words kWeightsOnDisk = {"--percent", "0", "0", "100", "0", "100", "0"};
const Words kWeightsInDram = {"--percent", "0", "100", "100", "0", "100", "0"};
const Words kCacheOnDisk = {"--percent", "100", "0", "0", "0", "100", "0"};
const Words kHiddenOnDisk = {"--percent", "100", "0", "100", "0", "0", "0"};
const Words kAllOnDisk = {"--percent", "0", "0", "0", "0", "0", "0"};
const Words kAllInDram = {"--percent", "0", "100", "0", "100", "0", "100"};

class OffloadFailure : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tiny_ = std::make_unique<TinyOpt>();
    prompts_ = tiny_->folder().write("mixed.jsonl", testing::mixed_requests(kRequests));
    endless_ = tiny_->folder().write("endless.jsonl", testing::endless_requests());
    const auto output = tiny_->fresh_file("resident");
    const auto end = testing::run_program(job(tiny_->store(), prompts_, output));
    ASSERT_EQ(end.exit_code, 0) << end.err;
    expected_ = testing::read_results(output);
    ASSERT_EQ(expected_.size(), static_cast<std::size_t>(kRequests));
  }
  static void TearDownTestSuite() { tiny_.reset(); }

  static Words job(const std::string& store, const std::string& prompts,
                   const std::string& output) {
    return {STAGECOACH_PROGRAM,
            "run",
            "--model",
            store,
            "--prompts",
            prompts,
            "--output",
            output,
            "--threads",
            "1",
            "--prompt-logprobs",
            "--logprobs",
            "3",
            "--timeout",
            "60",
            "--gpu-batch-size",
            "4",
            "--num-gpu-batches",
            "2"};
  }

  /// Without MPI for one rank; else the ranks before the last run `before`, and the last `last`.
  static Words launch(int ranks, const Words& before, const Words& last) {
    return ranks == 1 ? last : testing::mpiexec(ranks - 1) + before + Words{":", "-n", "1"} + last;
  }
  static Words launch(int ranks, const Words& all) { return launch(ranks, all, all); }

  /// The finite job, with `options`; `wrap` puts something before each rank's command.
  ProgramEnd run(int ranks, const Words& options, const Words& wrap = {}) {
    output_ = tiny_->fresh_file("out");
    return testing::run_program(
        launch(ranks, wrap + job(tiny_->store(), prompts_, output_) + options));
  }

  void expect_same_results(const ProgramEnd& end) const {
    ASSERT_EQ(end.exit_code, 0) << end.err;
    testing::expect_same_results(testing::read_results(output_), expected_);
  }

  /// Exit code 2, one line that has `parts`, and no output, which would be in the next run's way.
  void expect_refused(const ProgramEnd& end, const Words& parts) const {
    EXPECT_EQ(end.exit_code, 2) << end.err;
    EXPECT_EQ(lines_with(end.err, "stagecoach: "), 1) << end.err;
    for (const auto& part : parts) {
      EXPECT_THAT(end.err, HasSubstr(part));
    }
    EXPECT_FALSE(std::filesystem::exists(output_));
  }

  /// A job without end whose last rank sees `faults`, which must begin after its first results.
  /// Returns how it ended, if it did so in time.
  ProgramEnd run_into(int ranks, const Words& options, const Words& faults) {
    output_ = tiny_->fresh_file("out");
    const auto words = job(tiny_->store(), endless_, output_) + options;
    Program program(launch(ranks, words, testing::with_io_faults(faults, words)));
    testing::wait_for_results(output_);
    return testing::expect_end_soon(program);
  }

  /// One line with `parts`, whole results, and no rank alive.
  void expect_failed(int ranks, const ProgramEnd& end, const Words& parts) const {
    EXPECT_EQ(end.exit_code, 1) << end.err;
    EXPECT_EQ(lines_with(end.err, "stagecoach: "), 1) << end.err;
    for (const auto& part : parts) {
      EXPECT_THAT(end.err, HasSubstr(part));
    }
    if (ranks > 1) {
      EXPECT_THAT(end.err, HasSubstr(fmt::format("stagecoach: rank {} on ", ranks - 1)));
    }
    EXPECT_TRUE(testing::all_end_soon(output_)) << "a rank outlived the job";
    EXPECT_GT(testing::expect_whole_results(output_), 0u);
  }

  [[nodiscard]] std::string folder() const { return offload_.path(); }
  [[nodiscard]] Words in_folder(const std::string& folder) const {
    return {"--offload-dir", folder};
  }
  static void expect_empty(const std::string& folder) {
    EXPECT_TRUE(std::filesystem::is_empty(folder)) << "something was left in " << folder;
  }

  static inline std::unique_ptr<TinyOpt> tiny_;
  static inline std::string prompts_, endless_;
  static inline std::map<std::string, std::string> expected_;
  testing::TempFolder offload_;
  std::string output_;
};

struct Fault {
  const char* name;
  const Words& percent;
  Words settings;  ///< of io_faults: hit after the first results, alone and as one of two ranks
  std::string message;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

class FaultInTheRun : public OffloadFailure,
                      public ::testing::WithParamInterface<std::tuple<Fault, const char*, int>> {};

TEST_P(FaultInTheRun, EndsTheJobWithOneLine) {
  const auto& [fault, backend, ranks] = GetParam();
  const auto end = run_into(
      ranks, fault.percent + in_folder(folder()) + Words{"--disk-io", backend}, fault.settings);
  const auto file = fault.percent == kWeightsOnDisk ? tiny_->store() : folder() + "/(spill file)";
  expect_failed(ranks, end, {fmt::format(fmt::runtime(fault.message), file)});
  expect_empty(folder());
}

INSTANTIATE_TEST_SUITE_P(
    Disk, FaultInTheRun,
    ::testing::Combine(
        ::testing::Values(
            Fault{"spill_read",
                  kCacheOnDisk,
                  {"STAGECOACH_TEST_FAIL_READ=14000"},
                  "cannot read {} at byte "},
            Fault{"spill_write",
                  kCacheOnDisk,
                  {"STAGECOACH_TEST_FAIL_WRITE=600"},
                  "cannot write {} at byte "},
            Fault{"spill_full",
                  kHiddenOnDisk,
                  {"STAGECOACH_TEST_FAIL_WRITE=2400", "STAGECOACH_TEST_FAIL_ERRNO=28"},
                  "No space left on device: free space there or choose another --offload-dir"},
            Fault{"store_read",
                  kWeightsOnDisk,
                  {"STAGECOACH_TEST_FAIL_READ=4500"},
                  "cannot read {} at byte "}),
        ::testing::Values("auto", "threads"), ::testing::Values(1, 2)),
    [](const auto& info) {
      return fmt::format("{}_{}_{}", std::get<0>(info.param).name, std::get<1>(info.param),
                         std::get<2>(info.param));
    });

/// On one rank, and on two.
class EachNumberOfRanks : public OffloadFailure, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, EachNumberOfRanks, ::testing::Values(1, 2));

TEST_P(EachNumberOfRanks, AStoreThatIsTruncatedWhileTheJobRuns) {
  for (const auto* backend : {"auto", "threads"}) {
    SCOPED_TRACE(backend);
    const auto copy = tiny_->folder().file(fmt::format("copy-{}-{}.h5", GetParam(), backend));
    std::filesystem::copy_file(tiny_->store(), copy);
    output_ = tiny_->fresh_file("out");
    Program program(launch(
        GetParam(), job(copy, endless_, output_) + kWeightsOnDisk + Words{"--disk-io", backend}));
    testing::wait_for_results(output_);
    // Of the layers of the last rank alone.
    std::filesystem::resize_file(copy, std::filesystem::file_size(copy) / 4 * 3);
    expect_failed(GetParam(), testing::expect_end_soon(program), {copy + " ended at byte "});
  }
}

TEST_P(EachNumberOfRanks, AKilledRankLeavesNothingInTheFolder) {
  for (const Words& settings : {Words{}, Words{"STAGECOACH_TEST_NO_TMPFILE=1"}}) {
    SCOPED_TRACE(settings.size());
    output_ = tiny_->fresh_file("out");
    const auto words = testing::with_io_faults(
        settings, job(tiny_->store(), endless_, output_) + kAllOnDisk + in_folder(folder()));
    Program program(launch(GetParam(), words));
    testing::wait_for_results(output_);
    const auto victim = GetParam() == 1 ? program.pid() : program.find_rank(1);
    ASSERT_GT(victim, 0);
    ASSERT_EQ(::kill(victim, SIGKILL), 0);
    EXPECT_EQ(testing::expect_end_soon(program).exit_code, 137);
    EXPECT_TRUE(testing::all_end_soon(output_)) << "a rank outlived the job";
    testing::expect_whole_results(output_);
    expect_empty(folder());
  }
}

TEST_P(EachNumberOfRanks, OffloadFoldersThatCannotBeUsed) {
  const auto nowhere = tiny_->folder().file("nowhere");
  expect_refused(run(GetParam(), kCacheOnDisk + in_folder(nowhere)),
                 {"--offload-dir " + nowhere, "No such file or directory"});
  const auto file = tiny_->folder().write("a-file", "text");
  expect_refused(run(GetParam(), kCacheOnDisk + in_folder(file)),
                 {"--offload-dir " + file, "Not a directory"});
}

TEST_F(OffloadFailure, AnOffloadFolderMissingOnOneRank) {
  const testing::TempFolder here;
  const testing::TempFolder there;
  std::filesystem::create_directory(here.file("spill"));
  output_ = tiny_->fresh_file("out");
  const auto words = job(tiny_->store(), prompts_, output_) + kCacheOnDisk + in_folder("spill");
  const auto end = testing::run_program(testing::mpiexec(1) + Words{"-wdir", here.path()} + words +
                                        Words{":", "-n", "1", "-wdir", there.path()} + words);
  expect_refused(end, {"rank 1 on ", "--offload-dir spill", "No such file or directory"});
  expect_empty(here.file("spill"));
}

TEST_P(EachNumberOfRanks, AReadOnlyOffloadFolder) {
  const SmallDisk disk(std::size_t{64} << 20);
  if (!disk.mounted() || !disk.make_read_only()) {
    GTEST_SKIP() << "mounting a file system needs root";
  }
  expect_refused(run(GetParam(), kCacheOnDisk + in_folder(disk.folder())),
                 {"--offload-dir " + disk.folder(), "Read-only file system"});
}

TEST_P(EachNumberOfRanks, AnOffloadFolderInMemory) {
  const SmallDisk disk(std::size_t{256} << 20);
  if (!disk.mounted()) {
    GTEST_SKIP() << "mounting a file system needs root";
  }
  const auto end = run(GetParam(), kAllOnDisk + in_folder(disk.folder()));
  expect_same_results(end);
  expect_empty(disk.folder());
  const int direct = ::open(disk.folder().c_str(), O_TMPFILE | O_RDWR | O_DIRECT, 0600);
  if (direct >= 0) {  // Linux 6.6 and later
    ::close(direct);
  } else {
    EXPECT_THAT(end.err, HasSubstr("refuses direct I/O"));
  }
}

TEST_P(EachNumberOfRanks, AnOffloadFolderThatIsTooSmall) {
  const SmallDisk disk(std::size_t{1} << 20);
  if (!disk.mounted()) {
    GTEST_SKIP() << "mounting a file system needs root";
  }
  const auto found = run(GetParam(), kCacheOnDisk + in_folder(disk.folder()));
  expect_refused(found,
                 {"disk ", "KiB (KV cache ", "; more disk space (another --offload-dir) would do"});
  EXPECT_THAT(found.err, Not(HasSubstr("--disk-mem"))) << "no flag makes a disk larger";
  const auto given =
      run(GetParam(), kCacheOnDisk + in_folder(disk.folder()) + Words{"--disk-mem", "64MiB"});
  expect_refused(given, {"--offload-dir " + disk.folder(), "are needed", "are free"});
  expect_empty(disk.folder());
}

TEST_P(EachNumberOfRanks, RefusedDirectTransfersMakeNoDifference) {
  const auto end = run(GetParam(), kAllOnDisk + in_folder(folder()),
                       testing::with_io_faults({"STAGECOACH_TEST_NO_DIRECT=1"}, {}));
  expect_same_results(end);
  EXPECT_THAT(end.err, HasSubstr("warning: --offload-dir " + folder() +
                                 ": its file system refuses direct I/O"));
  EXPECT_THAT(end.err,
              HasSubstr("warning: " + tiny_->store() + ": its file system refuses direct reads"));
  expect_empty(folder());
}

TEST_P(EachNumberOfRanks, RefusedIoUringMakesNoDifference) {
  const auto refused = testing::with_io_faults({"STAGECOACH_TEST_NO_URING=1"}, {});
  const auto end = run(GetParam(), kAllOnDisk + in_folder(folder()), refused);
  expect_same_results(end);
  EXPECT_THAT(end.err, HasSubstr("8 threads (io_uring refused: Operation not permitted)"));
  EXPECT_EQ(lines_with(end.err, "8 threads"), GetParam()) << "once a rank";
}

TEST_P(EachNumberOfRanks, IoUringThatWasAskedForAndIsRefused) {
  const auto refused = testing::with_io_faults({"STAGECOACH_TEST_NO_URING=1"}, {});
  const auto end =
      run(GetParam(), kAllOnDisk + in_folder(folder()) + Words{"--disk-io", "uring"}, refused);
  expect_refused(end, {"--disk-io uring: io_uring refused: Operation not permitted",
                       "use --disk-io threads or auto"});
  expect_empty(folder());
}

/// Before a command: at most 64 KiB of locked memory, for root too.
Words with_memory_lock_limit() {
  Words words = {"prlimit", "--memlock=65536:65536"};
  if (::geteuid() == 0) {
    words = words + Words{"setpriv", "--inh-caps=-ipc_lock", "--bounding-set=-ipc_lock"};
  }
  return words;
}

TEST_P(EachNumberOfRanks, ALimitOfLockedMemory) {
  const auto limited = with_memory_lock_limit();
  const auto probe = testing::run_program(limited + Words{"sh", "-c", "ulimit -l"});
  if (probe.exit_code != 0 || probe.out != "64\n") {
    GTEST_SKIP() << "no prlimit, or no setpriv: " << probe.err;
  }
  const auto automatic = run(GetParam(), kWeightsInDram, limited);
  expect_same_results(automatic);
  EXPECT_EQ(lines_with(automatic.err, "weights in DRAM are not pinned"), GetParam())
      << automatic.err;
  const auto off = run(GetParam(), kWeightsInDram + Words{"--pin-weights", "off"}, limited);
  expect_same_results(off);
  EXPECT_THAT(off.err, Not(HasSubstr("not pinned")));
  expect_refused(run(GetParam(), kWeightsInDram + Words{"--pin-weights", "on"}, limited),
                 {"--pin-weights on", "may be pinned", "ulimit -l", "--pin-weights auto"});
}

/// Flags and values in turn, as a refusal names them.
Words flags_named(const std::string& message) {
  Words flags;
  for (const auto& named : testing::named_flags(message)) {
    flags.push_back(named.flag);
    flags.push_back(named.value);
  }
  return flags;
}

/// Flags with what `advice` says in place of their old values.
Words replaced(Words flags, const Words& advice) {
  for (std::size_t i = 0; i + 1 < advice.size(); i += 2) {
    const auto found = std::find(flags.begin(), flags.end(), advice[i]);
    if (found != flags.end()) {
      *(found + 1) = advice[i + 1];
    } else {
      flags.insert(flags.end(), {advice[i], advice[i + 1]});
    }
  }
  return flags;
}

TEST_P(EachNumberOfRanks, BudgetsThatAreTooSmallNameTheOnesThatWouldDo) {
  struct Case {
    Words percent;
    Words budgets;
    Words says;
  };
  const std::vector<Case> cases = {
      {kAllInDram, {"--device-mem", "1MiB"}, {"device ", " of 1.00 MiB (", "--device-mem "}},
      {kAllInDram, {"--cpu-mem", "1MiB"}, {"cpu ", " of 1.00 MiB (", "--cpu-mem "}},
      {kAllOnDisk, {"--disk-mem", "1MiB"}, {"disk ", " of 1.00 MiB (", "--disk-mem "}},
      {kAllOnDisk,
       {"--device-mem", "1MiB", "--cpu-mem", "2MiB", "--disk-mem", "1MiB"},
       {" of 1.00 MiB (", "cpu ", " of 2.00 MiB (", "--device-mem ", "--cpu-mem ", "--disk-mem "}},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(::testing::PrintToString(test.budgets));
    const auto with = [&](const Words& budgets) {
      return run(GetParam(), test.percent + in_folder(folder()) + budgets);
    };
    auto end = with(test.budgets);
    expect_refused(end, test.says + Words{"the job does not fit", " would do"});
    auto flags = test.budgets;
    // Each stage has its own needs, and says so when those before it have what they need.
    for (int refusals = 0; end.exit_code == 2 && refusals < GetParam(); ++refusals) {
      ASSERT_FALSE(flags_named(end.err).empty()) << end.err;
      flags = replaced(flags, flags_named(end.err));
      end = with(flags);
    }
    expect_same_results(end);
    expect_empty(folder());
  }
}

}  // namespace
}  // namespace stagecoach
