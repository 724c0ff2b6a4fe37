// The program with the stand-ins under mpiexec: hidden states over NCCL or MPI, GPUs given out to
// ranks, and what it says where there is no GPU or not enough of it.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "cuda/cuda_jobs.hpp"
#include "e2e/whole_jobs.hpp"
#include "support/program.hpp"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using testing::lines_with;
using ::testing::Not;
using testing::ProgramEnd;
using testing::Results;
using testing::TinyOpt;
using testing::Words;
using testing::operator+;

class CudaRun : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tiny_ = std::make_unique<TinyOpt>();
    prompts_ = tiny_->folder().write("greedy.jsonl", testing::greedy_requests(6));
    for (int stages = 1; stages <= 4; ++stages) {
      const auto output = tiny_->fresh_file("alone");
      const auto end = testing::run_program(
          with({}, job(output, {"--device", "cuda", "--stages", std::to_string(stages)})));
      ASSERT_EQ(end.exit_code, 0) << end.err;
      alone_.push_back(testing::read_results(output));
      // The pieces of a prompt depend on the number of stages, and so do a few bits.
      testing::expect_same_greedy_tokens(alone_.back(), alone_.front());
    }
  }
  static void TearDownTestSuite() { tiny_.reset(); }

  static Words job(const std::string& output, const Words& options,
                   const std::string& prompts = prompts_) {
    return Words{STAGECOACH_PROGRAM,  "run",
                 "--model",           tiny_->store(),
                 "--prompts",         prompts,
                 "--output",          output,
                 "--threads",         "1",
                 "--timeout",         "60",
                 "--logprobs",        "3",
                 "--gpu-batch-size",  "4",
                 "--num-gpu-batches", "2",
                 "--prefill-piece",   "96",
                 "--offload-dir",     tiny_->folder().path()} +
           options;
  }

  /// A command with these settings of the stand-ins, "DEVICES=2".
  static Words with(const Words& settings, const Words& command) {
    Words words{"env"};
    for (const auto& setting : settings) {
      words.push_back("STAGECOACH_STANDIN_" + setting);
    }
    return words + command;
  }

  ProgramEnd run(int ranks, const Words& settings, const Words& options,
                 const std::string& device = "cuda") {
    output_ = tiny_->fresh_file("out");
    const auto command = with(settings, job(output_, Words{"--device", device} + options));
    return testing::run_program(ranks == 1 ? command : testing::mpiexec(ranks) + command);
  }

  /// As in one process with so many stages, all on GPUs.
  void expect_same_bytes(int ranks, const ProgramEnd& end) const {
    ASSERT_EQ(end.exit_code, 0) << end.err;
    testing::expect_same_results(testing::read_results(output_),
                                 alone_.at(static_cast<std::size_t>(ranks - 1)));
  }

  void expect_refused(const ProgramEnd& end, const Words& parts) const {
    EXPECT_EQ(end.exit_code, 2) << end.err;
    EXPECT_EQ(lines_with(end.err, "stagecoach: "), 1) << end.err;
    for (const auto& part : parts) {
      EXPECT_THAT(end.err, HasSubstr(part));
    }
    EXPECT_FALSE(std::filesystem::exists(output_));
  }

  static inline std::unique_ptr<TinyOpt> tiny_;
  static inline std::string prompts_;
  static inline std::vector<Results> alone_;  ///< by the number of stages
  std::string output_;
};

TEST_F(CudaRun, SameBytesOverNcclForEveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(ranks);
    const auto end = run(ranks, {"DEVICES=4"}, {"--transport", ranks == 1 ? "auto" : "nccl"});
    expect_same_bytes(ranks, end);
    if (ranks > 1) {
      EXPECT_THAT(end.err, HasSubstr("NCCL"));
      EXPECT_THAT(end.err, HasSubstr("cuda:1"));
    }
  }
}

TEST_F(CudaRun, SameBytesOverNcclWithWeightsAndCacheInTiers) {
  for (const Words& percent :
       {Words{"0", "100", "100", "0", "100", "0"}, Words{"30", "30", "30", "30", "100", "0"},
        Words{"0", "0", "0", "0", "100", "0"}}) {
    const auto end = run(2, {"DEVICES=2", "ADVERSARY=7"},
                         Words{"--cpu-attention", "off", "--percent"} + percent);
    expect_same_bytes(2, end);
    EXPECT_THAT(end.err, HasSubstr("NCCL"));
  }
}

TEST_F(CudaRun, SameBytesOverMpi) {
  for (const int ranks : {2, 4}) {
    const auto end = run(ranks, {"DEVICES=4"}, {"--transport", "mpi"});
    expect_same_bytes(ranks, end);
    EXPECT_THAT(end.err, Not(HasSubstr("over NCCL")));
  }
}

TEST_F(CudaRun, RanksThatShareAGpuFallBackToMpiAndSaySo) {
  const auto end = run(3, {"DEVICES=2"}, {"--transport", "nccl"});
  expect_same_bytes(3, end);
  EXPECT_THAT(end.err, HasSubstr("ranks 0 and 2 share"));
}

TEST_F(CudaRun, ActivationsInDramFallBackToMpiAndSaySo) {
  const auto end = run(2, {"DEVICES=2"}, {"--percent", "100", "0", "100", "0", "0", "100"});
  expect_same_bytes(2, end);
  EXPECT_THAT(end.err, HasSubstr("hidden states go over MPI"));
}

TEST_F(CudaRun, WithoutAGpuItSaysSo) {
  for (const auto* error : {"35", "100"}) {
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(error);
      const auto setting = std::string("NO_DEVICE=") + error;
      expect_refused(run(ranks, {setting}, {}), {"--device cuda", "no usable GPU"});
    }
  }
  expect_refused(run(1, {"DEVICES=2"}, {}, "cuda:2"), {"cuda:2", "2 GPUs"});
}

TEST_F(CudaRun, AutoTakesTheHostWhereThereIsNoGpu) {
  const auto end = run(1, {"NO_DEVICE=100"}, {}, "auto");
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("(host, "));
  testing::expect_same_greedy_tokens(testing::read_results(output_), alone_.front());
  const auto gpu = run(1, {}, {}, "auto");
  expect_same_bytes(1, gpu);
  EXPECT_THAT(gpu.err, HasSubstr("(cuda:0, "));
}

TEST_F(CudaRun, WhatDoesNotFitIsRefusedWithNumbersAndFlags) {
  expect_refused(run(1, {"MEMORY=20000000"}, {}), {"device", "MiB"});
  expect_refused(run(1, {}, {"--device-mem", "6MiB"}), {"--device-mem", "MiB"});
  expect_refused(run(1, {"MEMORY=100000000"}, {"--device-mem", "300MiB"}), {"--device-mem", "MiB"});
}

TEST_F(CudaRun, WhereNothingCanBePinnedItSaysSo) {
  const auto end = run(1, {"PINNABLE=0"},
                       {"--cpu-attention", "off", "--percent", "0", "100", "0", "100", "0", "100"});
  expect_same_bytes(1, end);
  EXPECT_THAT(end.err, HasSubstr("refuses to pin memory"));
}

/// Two ranks with a GPU each and more work than any test lets be done; rank 1 with `settings`.
Words two_ranks_without_end(const Words& job, const Words& settings) {
  return testing::mpiexec(1) + Words{"env", "STAGECOACH_STANDIN_DEVICES=2"} + job +
         Words{":", "-n", "1", "env", "STAGECOACH_STANDIN_DEVICES=2"} + settings + job;
}

TEST_F(CudaRun, ARankThatIsKilledEndsTheJobSoon) {
  const auto endless = tiny_->folder().write("endless.jsonl", testing::endless_requests());
  for (const int victim : {0, 1}) {
    SCOPED_TRACE(victim);
    output_ = tiny_->fresh_file("out");
    testing::Program program(
        two_ranks_without_end(job(output_, {"--device", "cuda"}, endless), {}));
    testing::wait_for_results(output_);
    ASSERT_EQ(::kill(program.find_rank(victim), SIGKILL), 0);
    EXPECT_EQ(testing::expect_end_soon(program).exit_code, 137);
    EXPECT_TRUE(testing::all_end_soon(output_)) << "a rank outlived the job";
    EXPECT_GT(testing::expect_whole_results(output_), 0u);
  }
}

// After the ranks have connected: while they do, a failure is known to the other end only when its
// two minutes are over.
TEST_F(CudaRun, ACallThatFailsOnOneRankEndsTheJobWithOneLine) {
  const auto endless = tiny_->folder().write("endless.jsonl", testing::endless_requests());
  for (const int call : {3000, 20001}) {
    SCOPED_TRACE(call);
    output_ = tiny_->fresh_file("out");
    const auto failing = fmt::format("STAGECOACH_STANDIN_FAIL_CALL={}", call);
    testing::Program program(
        two_ranks_without_end(job(output_, {"--device", "cuda"}, endless), {failing}));
    const auto end = program.wait(std::chrono::minutes(1));
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->exit_code, 1) << end->err;
    EXPECT_EQ(lines_with(end->err, "stagecoach: "), 1) << end->err;
    EXPECT_THAT(end->err, HasSubstr("rank 1 on "));
    EXPECT_THAT(end->err, HasSubstr("could not "));
    EXPECT_TRUE(testing::all_end_soon(output_)) << "a rank outlived the job";
  }
}

}  // namespace
}  // namespace stagecoach
