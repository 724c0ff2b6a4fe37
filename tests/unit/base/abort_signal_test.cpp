#include "base/abort_signal.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/error.hpp"

namespace stagecoach {
namespace {

std::string text_of(const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(AbortSignal, IsQuietAtFirst) {
  const AbortSignal signal;
  EXPECT_FALSE(signal.raised());
  EXPECT_EQ(signal.cause(), nullptr);
  EXPECT_NO_THROW(signal.throw_if_raised());
}

TEST(AbortSignal, KeepsTheFirstCause) {
  AbortSignal signal;
  signal.raise(std::make_exception_ptr(IoError("first")));
  signal.raise(std::make_exception_ptr(IoError("second")));
  EXPECT_TRUE(signal.raised());
  EXPECT_EQ(text_of(signal.cause()), "first");
  EXPECT_THROW(signal.throw_if_raised(), JobAborted);
}

TEST(AbortSignal, HasACauseWhereverItIsSeenRaised) {
  for (int round = 0; round < 200; ++round) {
    AbortSignal signal;
    std::vector<std::jthread> threads;
    for (const char* name : {"a", "b"}) {
      threads.emplace_back(
          [&signal, name] { signal.raise(std::make_exception_ptr(IoError(name))); });
    }
    threads.emplace_back([&signal] {
      while (!signal.raised()) {
        std::this_thread::yield();
      }
      EXPECT_NE(signal.cause(), nullptr);
    });
  }
}

}  // namespace
}  // namespace stagecoach
