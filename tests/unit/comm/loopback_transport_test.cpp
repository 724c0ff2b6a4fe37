#include "comm/loopback_transport.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "support/transport_conformance.hpp"

namespace stagecoach::comm {
namespace {

using testing::TransportCase;

/// (ranks, promise)
class LoopbackConformance : public ::testing::TestWithParam<std::tuple<int, TransportCase>> {};

TEST_P(LoopbackConformance, Holds) {
  const auto& [ranks, test_case] = GetParam();
  AbortSignal abort;
  LoopbackHub hub(ranks, test_case.options, abort);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank, &body = test_case.body] {
      try {
        const auto transport = hub.transport(rank);
        body(*transport, abort);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, LoopbackConformance,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::ValuesIn(testing::transport_cases())),
                         [](const auto& info) {
                           return std::get<1>(info.param).name + "_on_" +
                                  std::to_string(std::get<0>(info.param));
                         });

TEST(LoopbackHub, RefusesRanksThatAreNotThere) {
  AbortSignal abort;
  LoopbackHub hub(2, {}, abort);
  EXPECT_THROW(static_cast<void>(hub.transport(2)), InternalError);
  EXPECT_THROW(static_cast<void>(hub.transport(-1)), InternalError);
  EXPECT_THROW(LoopbackHub(0, {}, abort), InternalError);
}

TEST(LoopbackHub, KeepsMessagesOfATransportThatIsGone) {
  AbortSignal abort;
  LoopbackHub hub(2, {}, abort);
  const std::vector<std::byte> data(100, std::byte{7});
  hub.transport(0)->send(data, 1, Channel::plan, "a message");
  EXPECT_TRUE(hub.transport(1)->receive_message(0, Channel::plan, "a message") == data);
}

TEST(LoopbackHub, WaitsEndSoonAfterAnAbort) {
  AbortSignal abort;
  LoopbackHub hub(2, {}, abort);
  const auto transport = hub.transport(1);
  std::chrono::steady_clock::time_point raised;
  const std::jthread raiser([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    raised = std::chrono::steady_clock::now();
    abort.raise(std::make_exception_ptr(IoError("the disk is gone")));
  });
  EXPECT_THROW(static_cast<void>(transport->receive_message(0, Channel::plan, "nothing")),
               JobAborted);
  EXPECT_LT(std::chrono::steady_clock::now() - raised, std::chrono::seconds(1));
}

}  // namespace
}  // namespace stagecoach::comm
