#include "base/units.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace stagecoach {
namespace {

TEST(ParseBytes, UnderstandsUnits) {
  const std::pair<const char*, std::size_t> cases[] = {
      {"0", 0},
      {"12", 12},
      {"12b", 12},
      {"64K", 64000},
      {"64kB", 64000},
      {"64KiB", 65536},
      {"64ki", 65536},
      {"200MB", 200000000},
      {"1.5GiB", 1610612736},
      {"16GIB", 17179869184},
      {"0.5k", 500},
      {"2T", 2000000000000},
      {"2TiB", 2199023255552},
      {"1e3", 1000},
      {"1.9", 1},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(parse_bytes(text, "--mem"), expected) << text;
  }
}

TEST(ParseBytes, RefusesTheRest) {
  for (const char* text :
       {"", "b", "GiB", "-1", "12Q", "12 GiB", "1.5.2", "12iB", "12KiBs", "bb", "12bb", "nan",
        "inf", "1e40", "9223372036854775808", " 5", "5 ", "0x10", "12Gi1"}) {
    try {
      parse_bytes(text, "--mem");
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith(std::string("--mem ") + text + ": "));
    }
  }
}

TEST(FormatBytes, ShowsThreePlaces) {
  const std::pair<std::size_t, const char*> cases[] = {
      {0, "0 B"},
      {1023, "1023 B"},
      {1024, "1.00 KiB"},
      {1536, "1.50 KiB"},
      {10240, "10.0 KiB"},
      {102400, "100 KiB"},
      {1610612736, "1.50 GiB"},
      {std::size_t{350} << 30, "350 GiB"},
      {std::size_t{3} << 40, "3.00 TiB"},
      {std::size_t{5000} << 50, "5000 PiB"},
  };
  for (const auto& [bytes, expected] : cases) {
    EXPECT_EQ(format_bytes(bytes), expected);
  }
}

TEST(FormatSeconds, ChangesUnits) {
  const std::pair<double, const char*> cases[] = {
      {0, "0.0 s"},     {4.24, "4.2 s"},      {59.94, "59.9 s"},   {59.96, "1m 00s"},
      {60, "1m 00s"},   {200, "3m 20s"},      {3599.4, "59m 59s"}, {3599.6, "1h 00m"},
      {3720, "1h 02m"}, {360000, "100h 00m"},
  };
  for (const auto& [seconds, expected] : cases) {
    EXPECT_EQ(format_seconds(seconds), expected) << seconds;
  }
}

}  // namespace
}  // namespace stagecoach
