#include "comm/mpi_transport.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "support/mpi_main.hpp"
#include "support/transport_conformance.hpp"

namespace stagecoach::comm {
namespace {

using testing::mpi_session;

class MpiConformance : public ::testing::TestWithParam<testing::TransportCase> {};

TEST_P(MpiConformance, Holds) {
  AbortSignal abort;
  const auto transport = make_mpi_transport(mpi_session(), GetParam().options, abort);
  EXPECT_EQ(transport->rank(), mpi_session().rank());
  EXPECT_EQ(transport->size(), mpi_session().size());
  GetParam().body(*transport, abort);
}

INSTANTIATE_TEST_SUITE_P(Promises, MpiConformance, ::testing::ValuesIn(testing::transport_cases()),
                         [](const auto& info) { return info.param.name; });

/// Far above what MPI sends before the receiver has come.
constexpr std::size_t kLarge = std::size_t{8} << 20;

TEST(MpiTransport, SendThatNobodyReceivesTimesOut) {
  if (mpi_session().size() < 2) {
    GTEST_SKIP() << "needs two ranks";
  }
  AbortSignal abort;
  const std::vector<std::byte> data(kLarge);
  const auto transport =
      make_mpi_transport(mpi_session(), {.timeout = std::chrono::seconds(1)}, abort);
  if (transport->rank() == 0) {
    try {
      transport->send(data, 1, Channel::hidden, "visit 17's hidden states");
      ADD_FAILURE() << "sent";
    } catch (const TransportError& error) {
      EXPECT_EQ(error.what(), transport->describe(0) +
                                  " has waited 1 s to send visit 17's hidden states to " +
                                  transport->describe(1) + " (the limit is --timeout)");
    }
  }
}

TEST(MpiTransport, SendEndsSoonAfterAnAbort) {
  if (mpi_session().size() < 2) {
    GTEST_SKIP() << "needs two ranks";
  }
  AbortSignal abort;
  const std::vector<std::byte> data(kLarge);
  const auto transport = make_mpi_transport(mpi_session(), {}, abort);
  if (transport->rank() == 0) {
    const std::jthread raiser([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      abort.raise(std::make_exception_ptr(IoError("the disk is gone")));
    });
    EXPECT_THROW(transport->send(data, 1, Channel::hidden, "hidden states"), JobAborted);
  }
}

TEST(MpiTransport, TransportsDoNotMixTheirMessages) {
  AbortSignal abort;
  const auto first = make_mpi_transport(mpi_session(), {}, abort);
  const auto second = make_mpi_transport(mpi_session(), {}, abort);
  const int to = (first->rank() + 1) % first->size();
  const int from = (first->rank() + first->size() - 1) % first->size();
  const std::vector<std::byte> one(10, std::byte{1});
  const std::vector<std::byte> two(20, std::byte{2});
  first->send(one, to, Channel::plan, "a message");
  second->send(two, to, Channel::plan, "a message");
  EXPECT_TRUE(second->receive_message(from, Channel::plan, "a message") == two);
  EXPECT_TRUE(first->receive_message(from, Channel::plan, "a message") == one);
}

}  // namespace
}  // namespace stagecoach::comm
