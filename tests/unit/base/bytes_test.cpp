#include "base/bytes.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"

namespace stagecoach {
namespace {

struct Point {
  std::int32_t x;
  float y;
};

TEST(Bytes, LayOutAsWritten) {
  ByteWriter writer;
  writer.put<std::uint16_t>(0x0201);
  writer.put_vector(std::vector<std::uint8_t>{5, 6});
  const auto bytes = std::move(writer).take();
  // Little-endian, without padding; a count of 8 bytes goes before a vector's values.
  const unsigned char expected[] = {1, 2, 2, 0, 0, 0, 0, 0, 0, 0, 5, 6};
  ASSERT_EQ(bytes.size(), sizeof(expected));
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof(expected)), 0);
}

TEST(Bytes, ReadBackWhatWasWritten) {
  ByteWriter writer;
  writer.put(Point{-3, 0.5f});
  writer.put_string("");
  writer.put_string(std::string("caf\xc3\xa9 \0x", 8));
  writer.put_vector(std::vector<Point>{{1, 2}, {3, 4}});
  writer.put_vector(std::vector<double>{});
  const auto bytes = std::move(writer).take();

  ByteReader reader(bytes);
  EXPECT_EQ(reader.get<Point>().x, -3);
  EXPECT_EQ(reader.get_string(), "");
  EXPECT_EQ(reader.get_string(), std::string("caf\xc3\xa9 \0x", 8));
  const auto points = reader.get_vector<Point>();
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[1].y, 4);
  EXPECT_TRUE(reader.get_vector<double>().empty());
  EXPECT_NO_THROW(reader.expect_end());
}

TEST(Bytes, TooFewAreAnError) {
  ByteWriter writer;
  writer.put_vector(std::vector<std::int32_t>{1, 2, 3});
  const auto bytes = std::move(writer).take();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    ByteReader reader{std::span(bytes).first(length)};
    EXPECT_THROW(reader.get_vector<std::int32_t>(), FormatError) << length;
  }
}

/// A count whose bytes wrap around must not look small.
TEST(Bytes, AbsurdCountIsAnError) {
  ByteWriter writer;
  writer.put(std::numeric_limits<std::uint64_t>::max() / 4 + 1);
  writer.put<std::uint64_t>(0);
  const auto bytes = std::move(writer).take();
  EXPECT_THROW(ByteReader(bytes).get_vector<std::int32_t>(), FormatError);
  EXPECT_THROW(ByteReader(bytes).get_string(), FormatError);
}

TEST(Bytes, TooManyAreAnError) {
  const std::vector<std::byte> bytes(9);
  ByteReader reader(bytes);
  reader.get<std::uint64_t>();
  EXPECT_THROW(reader.expect_end(), FormatError);
}

}  // namespace
}  // namespace stagecoach
