#include "support/mpi_listeners.hpp"

#include <cstdio>
#include <utility>

namespace stagecoach::testing {

RankPrinter::RankPrinter(int rank, std::unique_ptr<::testing::TestEventListener> printer)
    : rank_(rank), printer_(std::move(printer)) {}

void RankPrinter::OnTestProgramStart(const ::testing::UnitTest& program) {
  if (rank_ == 0) {
    printer_->OnTestProgramStart(program);
  }
}

void RankPrinter::OnTestStart(const ::testing::TestInfo& test) {
  if (rank_ == 0) {
    printer_->OnTestStart(test);
    std::fflush(stdout);
  }
}

void RankPrinter::OnTestPartResult(const ::testing::TestPartResult& result) {
  if (result.passed()) {
    return;
  }
  std::fprintf(stderr, "[rank %d] %s:%d: %s\n%s\n", rank_,
               result.file_name() != nullptr ? result.file_name() : "unknown file",
               result.line_number(), result.skipped() ? "Skipped" : "Failure", result.message());
  std::fflush(stderr);
}

void RankPrinter::OnTestEnd(const ::testing::TestInfo& test) {
  if (rank_ == 0) {
    printer_->OnTestEnd(test);
    std::fflush(stdout);
  }
}

void RankPrinter::OnTestIterationEnd(const ::testing::UnitTest& program, int iteration) {
  if (rank_ == 0) {
    printer_->OnTestIterationEnd(program, iteration);
  }
}

void RankPrinter::OnTestProgramEnd(const ::testing::UnitTest& program) {
  if (rank_ == 0) {
    printer_->OnTestProgramEnd(program);
  }
}

Watchdog::Watchdog(int rank, std::chrono::seconds limit)
    : rank_(rank), limit_(limit), thread_([this](const std::stop_token& stop) { watch(stop); }) {}

void Watchdog::OnTestStart(const ::testing::TestInfo& test) {
  const std::lock_guard lock(mutex_);
  test_ = std::string(test.test_suite_name()) + "." + test.name();
  deadline_ = std::chrono::steady_clock::now() + limit_;
  changed_.notify_all();
}

void Watchdog::OnTestEnd(const ::testing::TestInfo& /*test*/) {
  const std::lock_guard lock(mutex_);
  test_.clear();
  changed_.notify_all();
}

void Watchdog::expect_others() {
  const std::lock_guard lock(mutex_);
  deadline_ += std::chrono::seconds(1);
  changed_.notify_all();
}

void Watchdog::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !test_.empty(); })) {
    const auto deadline = deadline_;
    const bool over = changed_.wait_until(lock, stop, deadline,
                                          [&] { return test_.empty() || deadline_ != deadline; });
    if (!over && !stop.stop_requested()) {
      std::fprintf(stderr, "[rank %d] %s: no end after %lld s, the watchdog ends the job\n", rank_,
                   test_.c_str(), static_cast<long long>(limit_.count()));
      std::fflush(stderr);
      MPI_Abort(MPI_COMM_WORLD, 124);
    }
  }
}

RankVerdict::RankVerdict(MPI_Comm communicator, int rank, Watchdog& watchdog)
    : communicator_(communicator), rank_(rank), watchdog_(watchdog) {}

void RankVerdict::OnTestEnd(const ::testing::TestInfo& test) {
  watchdog_.expect_others();
  const int failed = test.result()->Failed() ? 1 : 0;
  int ranks = 0;
  MPI_Allreduce(&failed, &ranks, 1, MPI_INT, MPI_SUM, communicator_);
  if (rank_ == 0 && ranks > failed) {
    ADD_FAILURE() << "failed on " << ranks - failed << " other rank(s)";
  }
}

}  // namespace stagecoach::testing
