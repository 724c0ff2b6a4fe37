#include "offload/transfer_ledger.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.hpp"

namespace stagecoach::offload {
namespace {

class TransferLedgerTest : public ::testing::Test {
 protected:
  std::shared_ptr<device::HostEvent> add() {
    auto event = std::make_shared<device::HostEvent>("test", abort_);
    ledger_.add(event);
    return event;
  }

  AbortSignal abort_;
  TransferLedger ledger_;
};

TEST_F(TransferLedgerTest, AnEventOfNothingPassesAtOnce) { EXPECT_TRUE(add()->passed()); }

TEST_F(TransferLedgerTest, AnEventWaitsForWhatBeganBeforeIt) {
  auto* first = ledger_.begin();
  auto* second = ledger_.begin();
  const auto event = add();
  auto* later = ledger_.begin();
  ledger_.end(second, 1, false);
  EXPECT_FALSE(event->passed());
  ledger_.end(first, 1, false);
  EXPECT_TRUE(event->passed());
  ledger_.end(later, 1, false);
}

TEST_F(TransferLedgerTest, EventsPassInOrder) {
  auto* first = ledger_.begin();
  const auto one = add();
  auto* second = ledger_.begin();
  const auto two = add();
  const auto three = add();
  ledger_.end(second, 1, false);
  EXPECT_FALSE(two->passed());
  EXPECT_FALSE(three->passed());
  ledger_.end(first, 1, false);
  EXPECT_TRUE(one->passed());
  EXPECT_TRUE(two->passed());
  EXPECT_TRUE(three->passed());
}

TEST_F(TransferLedgerTest, AfterAFailureEventsAreDropped) {
  auto* transfer = ledger_.begin();
  const auto before = add();
  ledger_.fail();
  ledger_.end(transfer, 1, false);
  const auto after = add();
  EXPECT_THROW(before->wait(), JobAborted);
  EXPECT_THROW(after->wait(), JobAborted);
}

TEST_F(TransferLedgerTest, CountsBytesAndBusyTime) {
  auto* first = ledger_.begin();
  auto* second = ledger_.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_GE(ledger_.counters().busy_seconds, 0.02);
  ledger_.end(first, 100, false);
  ledger_.end(second, 30, true);
  const auto counters = ledger_.counters();
  EXPECT_EQ(counters.bytes_read, 100u);
  EXPECT_EQ(counters.bytes_written, 30u);
  EXPECT_EQ(counters.requests, 2u);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(ledger_.counters().busy_seconds, counters.busy_seconds);
}

}  // namespace
}  // namespace stagecoach::offload
