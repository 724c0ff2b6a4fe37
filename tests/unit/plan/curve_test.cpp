#include "plan/curve.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"
#include "plan/numbers.hpp"

namespace stagecoach::plan {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_curve(text, "here");
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError for " << text;
  return {};
}

TEST(Curve, IsStraightBetweenPointsInLogarithms) {
  // Between 1 and 16 a rate of 10 becomes 40: each doubling of the size gives a factor of sqrt(2).
  const Curve curve({{1, 10}, {16, 40}, {64, 10}});
  EXPECT_DOUBLE_EQ(curve.at(4), 20);
  EXPECT_DOUBLE_EQ(curve.at(2), 14.142135623730951);
  EXPECT_DOUBLE_EQ(curve.at(32), 20);
}

TEST(Curve, HasItsPointsExactlyAndTheNearestRateOutside) {
  const Curve curve({{3, 0.1}, {7, 0.7}});
  EXPECT_EQ(curve.at(3), 0.1);
  EXPECT_EQ(curve.at(7), 0.7);
  EXPECT_EQ(curve.at(0), 0.1);
  EXPECT_EQ(curve.at(1e30), 0.7);
  EXPECT_EQ(Curve(5).at(0.5), 5);
  EXPECT_EQ(Curve(5).at(1e9), 5);
}

TEST(Curve, ScalesRates) {
  const std::vector<Curve::Point> expected{{3, 1}, {7, 2}};
  EXPECT_EQ(Curve({{3, 4}, {7, 8}}).scaled(0.25).points(), expected);
}

TEST(Curve, RefusesWhatIsNoCurve) {
  EXPECT_THROW(Curve({{3, 1}, {3, 2}}), InternalError);
  EXPECT_THROW(Curve({{0, 1}}), InternalError);
  EXPECT_THROW(Curve({{1, 0}}), InternalError);
  EXPECT_THROW(Curve({{1, 1}}).scaled(0), InternalError);
  EXPECT_THROW(Curve({{1, 1}}).scaled(-1), InternalError);
  EXPECT_THROW((void)Curve().at(1), InternalError);
  EXPECT_TRUE(Curve().empty());
}

TEST(Curve, IsReadFromARateOrPoints) {
  EXPECT_EQ(parse_curve("2.1e9", "here"), Curve(2.1e9));
  const Curve points({{1, 1.1e10}, {16, 8.5e10}});
  EXPECT_EQ(parse_curve(" 1:1.1e10\t 16:85000000000 ", "here"), points);
  EXPECT_EQ(parse_curve("4096:7", "here"), Curve({{4096, 7}}));
}

TEST(Curve, ReadingRefusesClearly) {
  EXPECT_EQ(error_of(" "), "here: is empty; write a rate, or 'size:rate' for each size");
  EXPECT_EQ(error_of("fast"),
            "here: 'fast' is no rate; write one rate, or 'size:rate' for each size");
  EXPECT_EQ(error_of("1:2 x:3"),
            "here: 'x' is no size; write one rate, or 'size:rate' for each size");
  EXPECT_EQ(error_of("1:2 16"), "here: '16' must be 'size:rate'");
  EXPECT_EQ(error_of("1:2 16:3:4"),
            "here: '3:4' is no rate; write one rate, or 'size:rate' for each size");
  EXPECT_EQ(error_of("0"), "here: the rate 0 must be above 0; measure it again");
  EXPECT_EQ(error_of("1:-2"), "here: the rate -2 must be above 0; measure it again");
  EXPECT_EQ(error_of("-1:2"), "here: the size -1 must be above 0; measure it again");
  EXPECT_EQ(error_of("16:1 16:2"),
            "here: size 16 comes after 16; write the sizes in ascending order");
  EXPECT_EQ(error_of("1:1 16:1 4:2"),
            "here: size 4 comes after 16; write the sizes in ascending order");
  for (const char* text : {"nan", "inf", "1:inf", "nan:1", "1e999", "1:", ":1", "1e9x", "0x10"}) {
    EXPECT_NE(error_of(text).find("is no "), std::string::npos) << text;
  }
}

TEST(Curve, IsWrittenShort) {
  EXPECT_EQ(format_curve(Curve(2.1e9)), "2.1e9");
  EXPECT_EQ(format_curve(Curve({{1, 1.1e10}, {16, 8.5e10}, {1048576, 12}})),
            "1:1.1e10 16:8.5e10 1.048576e6:12");
  EXPECT_EQ(format_curve(Curve({{4096, 7}})), "4096:7");
}

TEST(Numbers, AreWrittenAsPeopleDo) {
  EXPECT_EQ(format_number(0), "0");
  EXPECT_EQ(format_number(16), "16");
  EXPECT_EQ(format_number(-2.5), "-2.5");
  EXPECT_EQ(format_number(999999), "999999");
  EXPECT_EQ(format_number(1e6), "1e6");
  EXPECT_EQ(format_number(1.24e10), "1.24e10");
  EXPECT_EQ(format_number(1e-5), "1e-5");
  EXPECT_EQ(format_number(2.5e100), "2.5e100");
  EXPECT_EQ(format_number(0.1), "0.1");
}

TEST(Numbers, AreReadBackExactly) {
  const double numbers[] = {0.1,      1.0 / 3,  1e10 / 3,       1e-5 / 3,
                            5e-324,   1e6 + .5, 123456.789e-9,  123456789012345678.0,
                            1e6 - .1, 0x1p-52,  0x1.fffffp1023, 0.001};
  for (const double number : numbers) {
    EXPECT_EQ(parse_number(format_number(number)), number) << format_number(number);
  }
  EXPECT_EQ(parse_number("1 "), std::nullopt);
  EXPECT_EQ(parse_number(""), std::nullopt);
}

}  // namespace
}  // namespace stagecoach::plan
