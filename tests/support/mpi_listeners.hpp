#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace stagecoach::testing {

/// Prints a failure at once, with its rank: one kept for the end of its test would be lost when
/// another rank hangs. What GoogleTest itself prints comes from rank 0 only.
class RankPrinter final : public ::testing::EmptyTestEventListener {
 public:
  RankPrinter(int rank, std::unique_ptr<::testing::TestEventListener> printer);

  void OnTestProgramStart(const ::testing::UnitTest& program) override;
  void OnTestStart(const ::testing::TestInfo& test) override;
  void OnTestPartResult(const ::testing::TestPartResult& result) override;
  void OnTestEnd(const ::testing::TestInfo& test) override;
  void OnTestIterationEnd(const ::testing::UnitTest& program, int iteration) override;
  void OnTestProgramEnd(const ::testing::UnitTest& program) override;

 private:
  int rank_;
  std::unique_ptr<::testing::TestEventListener> printer_;
};

/// Ends the job with exit code 124, naming rank and test, when a test takes longer than `limit`.
/// Ranks that only wait for the others get a second more, so that the one that hangs is the one
/// that speaks.
class Watchdog final : public ::testing::EmptyTestEventListener {
 public:
  Watchdog(int rank, std::chrono::seconds limit);

  void OnTestStart(const ::testing::TestInfo& test) override;
  void OnTestEnd(const ::testing::TestInfo& test) override;

  /// This rank has ended the test, and waits for the others.
  void expect_others();

 private:
  void watch(const std::stop_token& stop);

  int rank_;
  std::chrono::seconds limit_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::string test_;  ///< empty between tests
  std::chrono::steady_clock::time_point deadline_;
  std::jthread thread_;  ///< last: it uses the others
};

/// Fails a test on rank 0 when it failed on another rank. Ranks that wait for one that failed are
/// the watchdog's.
class RankVerdict final : public ::testing::EmptyTestEventListener {
 public:
  /// `watchdog` must outlive it.
  RankVerdict(MPI_Comm communicator, int rank, Watchdog& watchdog);

  void OnTestEnd(const ::testing::TestInfo& test) override;

 private:
  MPI_Comm communicator_;
  int rank_;
  Watchdog& watchdog_;
};

}  // namespace stagecoach::testing
