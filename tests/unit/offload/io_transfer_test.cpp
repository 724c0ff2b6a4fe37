#include "offload/io_transfer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "base/error.hpp"

namespace stagecoach::offload {
namespace {

constexpr std::uint64_t kOffset = 1 << 20;
constexpr std::size_t kBytes = 4 * kDiskAlignment;

class IoTransferTest : public ::testing::Test {
 protected:
  IoTransfer make(const DirectFile& file, bool write, std::size_t least_bytes) {
    return IoTransfer({&file, write, kOffset, memory_.data(), kBytes, least_bytes});
  }
  void expect_left(const IoTransfer& transfer, std::size_t from) {
    EXPECT_EQ(transfer.data(), memory_.data() + from);
    EXPECT_EQ(transfer.offset(), kOffset + from);
    EXPECT_EQ(transfer.size_bytes(), kBytes - from);
  }

  const DirectFile direct_{"disk", -1, true};
  const DirectFile buffered_{"disk", -1, false};
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBytes);
};

std::string failure(IoTransfer& transfer, std::int64_t answer) {
  try {
    transfer.advance(answer);
  } catch (const IoError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST_F(IoTransferTest, AFullAnswerCompletes) {
  auto transfer = make(direct_, true, 0);
  expect_left(transfer, 0);
  EXPECT_TRUE(transfer.advance(kBytes));
}

TEST_F(IoTransferTest, ShortAnswersAreResumed) {
  auto transfer = make(buffered_, true, 0);
  EXPECT_FALSE(transfer.advance(1000));
  expect_left(transfer, 1000);
  EXPECT_FALSE(transfer.advance(5000));
  expect_left(transfer, 6000);
  EXPECT_TRUE(transfer.advance(kBytes - 6000));
}

TEST_F(IoTransferTest, DirectTransfersResumeAtTheirLastBlock) {
  auto transfer = make(direct_, false, kBytes);
  EXPECT_FALSE(transfer.advance(5000));
  expect_left(transfer, 4096);
  EXPECT_FALSE(transfer.advance(4096));
  expect_left(transfer, 8192);
  EXPECT_TRUE(transfer.advance(kBytes - 8192));
}

TEST_F(IoTransferTest, AReadMayEndAfterItsLeast) {
  EXPECT_TRUE(make(direct_, false, 5000).advance(5000));
  EXPECT_TRUE(make(direct_, false, 0).advance(0));
}

TEST_F(IoTransferTest, AnEarlierEndIsAnError) {
  auto transfer = make(direct_, false, 6000);
  EXPECT_FALSE(transfer.advance(5000));
  EXPECT_EQ(failure(transfer, 5000 - 4096),
            "disk ended at byte 1053576: truncated? 1000 more bytes were expected");
}

TEST_F(IoTransferTest, AWriteThatTakesNothingIsAnError) {
  auto transfer = make(buffered_, true, 0);
  EXPECT_FALSE(transfer.advance(4096));
  EXPECT_EQ(failure(transfer, 0),
            "cannot write disk at byte 1052672: the system takes no more bytes");
}

TEST_F(IoTransferTest, InterruptionsAreRetried) {
  auto transfer = make(direct_, false, kBytes);
  EXPECT_FALSE(transfer.advance(-EINTR));
  EXPECT_FALSE(transfer.advance(-EAGAIN));
  expect_left(transfer, 0);
  EXPECT_TRUE(transfer.advance(kBytes));
}

TEST_F(IoTransferTest, ErrorsNamePathAndPlace) {
  auto reading = make(direct_, false, kBytes);
  EXPECT_FALSE(reading.advance(4096));
  EXPECT_EQ(failure(reading, -EIO), "cannot read disk at byte 1052672: Input/output error");
  auto writing = make(direct_, true, 0);
  EXPECT_EQ(
      failure(writing, -ENOSPC),
      "cannot write disk at byte 1048576: No space left on device: free space there or choose "
      "another --offload-dir");
}

}  // namespace
}  // namespace stagecoach::offload
