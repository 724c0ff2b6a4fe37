// Tests that behave badly on purpose, for check_harness.sh.
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "support/mpi_main.hpp"

namespace stagecoach {
namespace {

int rank() { return testing::mpi_session().rank(); }

void hang() { std::this_thread::sleep_for(std::chrono::hours(1)); }

TEST(Harness, passes) { EXPECT_EQ(testing::mpi_session().size(), 2); }

TEST(Harness, skips) { GTEST_SKIP() << "on purpose"; }

TEST(Harness, fails_on_rank_0) { EXPECT_NE(rank(), 0) << "on purpose"; }

TEST(Harness, fails_on_rank_1) { EXPECT_NE(rank(), 1) << "on purpose"; }

TEST(Harness, fails_fatally_on_rank_1) { ASSERT_NE(rank(), 1) << "on purpose"; }

TEST(Harness, throws_on_rank_1) {
  if (rank() == 1) {
    throw std::runtime_error("on purpose");
  }
}

TEST(Harness, hangs_on_rank_1) {
  if (rank() == 1) {
    hang();
  }
}

TEST(Harness, hangs_on_all_ranks) { hang(); }

TEST(Harness, waits_for_a_failed_rank) {
  ASSERT_NE(rank(), 1) << "on purpose";
  int never = 0;
  MPI_Recv(&never, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

class HarnessSetUp : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(rank(), 1) << "on purpose"; }
};

TEST_F(HarnessSetUp, fails_in_setup_on_rank_1) {}

}  // namespace
}  // namespace stagecoach
