#include "model/utf8.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace stagecoach::model {
namespace {

TEST(Utf8Test, EveryScalarValueGoesThereAndBack) {
  for (char32_t value = 0; value <= 0x10ffff; ++value) {
    std::string bytes;
    append_code_point(bytes, value);
    const auto unit = first_utf8_unit(bytes);
    if (value >= 0xd800 && value <= 0xdfff) {
      ASSERT_EQ(unit.kind, Utf8Kind::invalid) << static_cast<std::uint32_t>(value);
      ASSERT_EQ(unit.size, 1u) << static_cast<std::uint32_t>(value);
    } else {
      ASSERT_EQ(unit.kind, Utf8Kind::valid) << static_cast<std::uint32_t>(value);
      ASSERT_EQ(unit.size, bytes.size()) << static_cast<std::uint32_t>(value);
      ASSERT_EQ(first_code_point(bytes), value);
    }
  }
}

TEST(Utf8Test, EveryStartOfAScalarValueIsIncomplete) {
  for (char32_t value = 0x80; value <= 0x10ffff; value += 37) {
    if (value >= 0xd800 && value <= 0xdfff) {
      continue;
    }
    std::string bytes;
    append_code_point(bytes, value);
    for (std::size_t size = 1; size < bytes.size(); ++size) {
      const auto unit = first_utf8_unit(bytes.substr(0, size));
      ASSERT_EQ(unit.kind, Utf8Kind::incomplete) << static_cast<std::uint32_t>(value);
      ASSERT_EQ(unit.size, size) << static_cast<std::uint32_t>(value);
    }
  }
}

TEST(Utf8Test, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8(""), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("plain, na\u00efve, \u65e5\u672c, \U0001f44d"),
            std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("ab\xff"), 2u);
  EXPECT_EQ(find_invalid_utf8("\u65e5\xc0\xaf"), 3u);
  EXPECT_EQ(find_invalid_utf8("abc\xe6\x97"), 3u);
}

TEST(Utf8Test, AppendLeavesAnIncompleteEndAndReplacesTheRest) {
  std::string out = "-";
  EXPECT_EQ(append_valid_utf8(out, "a\xff\xe6\x97"), 2u);
  EXPECT_EQ(out, "-a\ufffd");
  EXPECT_EQ(append_valid_utf8(out, "\xe6\x97\xa5"), 3u);
  EXPECT_EQ(out, "-a\ufffd\u65e5");
}

}  // namespace
}  // namespace stagecoach::model
