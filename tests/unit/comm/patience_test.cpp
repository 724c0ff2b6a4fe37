#include "comm/patience.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "base/system.hpp"
#include "comm/loopback_transport.hpp"

namespace stagecoach::comm {
namespace {

class PatienceTest : public ::testing::Test {
 protected:
  [[nodiscard]] Patience patience(std::chrono::milliseconds timeout,
                                  Patience::Direction direction) const {
    return {*transport_, timeout, abort_, direction, 0, what_};
  }

  AbortSignal abort_;
  LoopbackHub hub_{2, {}, abort_};
  std::unique_ptr<Transport> transport_ = hub_.transport(1);
  std::string what_ = "visit 17's hidden states";
};

template <typename Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const TransportError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(PatienceTest, SaysWhoWaitsForWhat) {
  const auto host = host_name();
  const auto receive = patience(std::chrono::milliseconds(0), Patience::Direction::receive);
  EXPECT_EQ(error_of([&] { receive.check(); }),
            "rank 1 on " + host + " has waited 0 s for visit 17's hidden states from rank 0 on " +
                host + " (the limit is --timeout)");
  const auto send = patience(std::chrono::milliseconds(0), Patience::Direction::send);
  EXPECT_EQ(error_of([&] { send.check(); }),
            "rank 1 on " + host + " has waited 0 s to send visit 17's hidden states to rank 0 on " +
                host + " (the limit is --timeout)");
}

TEST_F(PatienceTest, StartsAgainWhenSomethingCame) {
  auto patience = this->patience(std::chrono::seconds(1), Patience::Direction::receive);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  patience.renew();
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_NO_THROW(patience.check());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_THROW(patience.check(), TransportError);
}

TEST_F(PatienceTest, EndsWithTheJob) {
  const auto patience = this->patience(std::chrono::hours(1), Patience::Direction::receive);
  EXPECT_NO_THROW(patience.check());
  abort_.raise(std::make_exception_ptr(IoError("the disk is gone")));
  EXPECT_THROW(patience.check(), JobAborted);
}

}  // namespace
}  // namespace stagecoach::comm
