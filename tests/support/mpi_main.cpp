// main() of the test programs that run under mpiexec, the same tests on every rank.
#include "support/mpi_main.hpp"

#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstdlib>
#include <memory>

#include "support/mpi_listeners.hpp"

namespace stagecoach::testing {
namespace {

const comm::MpiSession* the_session = nullptr;

std::chrono::seconds watchdog_limit() {
  const char* text = std::getenv("STAGECOACH_TEST_WATCHDOG_S");
  return std::chrono::seconds(text != nullptr ? std::atoi(text) : 30);
}

void install_listeners(MPI_Comm communicator, int rank) {
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    delete listeners.Release(listeners.default_xml_generator());
  }
  std::unique_ptr<::testing::TestEventListener> printer(
      listeners.Release(listeners.default_result_printer()));
  // Ends of tests are told to the last listener first: verdict, then watchdog, then printer.
  listeners.Append(new RankPrinter(rank, std::move(printer)));
  auto* watchdog = new Watchdog(rank, watchdog_limit());
  listeners.Append(watchdog);
  listeners.Append(new RankVerdict(communicator, rank, *watchdog));
}

int run_tests(const comm::MpiSession& session) {
  the_session = &session;
  MPI_Comm communicator = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
  install_listeners(communicator, session.rank());
  int result = RUN_ALL_TESTS();
  MPI_Allreduce(MPI_IN_PLACE, &result, 1, MPI_INT, MPI_MAX, communicator);
  MPI_Comm_free(&communicator);
  return result;
}

}  // namespace

const comm::MpiSession& mpi_session() { return *the_session; }

}  // namespace stagecoach::testing

int main(int argc, char** argv) {
  const stagecoach::comm::MpiSession session;
  ::testing::InitGoogleTest(&argc, argv);
  return stagecoach::testing::run_tests(session);
}
