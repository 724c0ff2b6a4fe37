#include "base/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(Check, PassesQuietly) { EXPECT_NO_THROW(STAGECOACH_CHECK(1 + 1 == 2, "never {}", 1)); }

TEST(Check, NamesPlaceExpressionAndValues) {
  const int layers = 3;
  try {
    STAGECOACH_CHECK(layers == 4, "{} layers", layers);
    FAIL() << "passed";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), ::testing::ContainsRegex("error_test\\.cpp:[0-9]+: "));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("check failed: layers == 4: 3 layers"));
  }
}

TEST(Check, NeedsNoMessage) {
  try {
    STAGECOACH_CHECK(false);
    FAIL() << "passed";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), ::testing::EndsWith("check failed: false"));
  }
}

}  // namespace
}  // namespace stagecoach
