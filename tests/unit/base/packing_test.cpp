#include "base/packing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"

namespace stagecoach {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::array kPackings = {Packing::int8, Packing::int4};
constexpr std::array<std::int64_t, 3> kGroups = {32, 64, 128};

int bits_of(Packing packing) { return packing == Packing::int4 ? 4 : 8; }

// --- Vectors of tests/reference/packing_vectors.py.

const json& vectors() {
  static const json all =
      json::parse(read_text_file(STAGECOACH_SOURCE_DIR "/tests/data/packing_vectors.json"));
  return all;
}

/// Bit patterns, one after the other.
template <typename Bits>
std::vector<Bits> from_hex(const std::string& hex) {
  std::vector<Bits> numbers;
  for (std::size_t i = 0; i < hex.size(); i += 2 * sizeof(Bits)) {
    numbers.push_back(static_cast<Bits>(std::stoul(hex.substr(i, 2 * sizeof(Bits)), nullptr, 16)));
  }
  return numbers;
}

std::vector<float> floats(const json& hex) {
  std::vector<float> numbers;
  for (const auto bits : from_hex<std::uint32_t>(hex.get<std::string>())) {
    numbers.push_back(std::bit_cast<float>(bits));
  }
  return numbers;
}

std::vector<Half> halves(const json& hex) {
  std::vector<Half> numbers;
  for (const auto bits : from_hex<std::uint16_t>(hex.get<std::string>())) {
    numbers.push_back({bits});
  }
  return numbers;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& numbers) {
  std::vector<std::uint32_t> bits;
  for (const auto number : numbers) {
    bits.push_back(std::bit_cast<std::uint32_t>(number));
  }
  return bits;
}

PackFormat format_of(const json& vector) {
  return {parse_packing(vector["packing"].get<std::string>(), "packing"),
          vector["group"].get<std::int64_t>()};
}

std::string name_of(const json& vector) {
  return vector["input"].get<std::string>() + ", " + describe(format_of(vector));
}

std::vector<std::uint8_t> bytes_of(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  return {bytes, bytes + size};
}

/// Every byte is there to be overwritten.
std::vector<std::byte> dirty(std::int64_t size) {
  return std::vector<std::byte>(static_cast<std::size_t>(size), std::byte{0xa5});
}

struct Run {
  std::vector<GroupParams> params;
  std::vector<std::byte> codes;
};

Run packed(const PackFormat& format, const std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  Run run{std::vector<GroupParams>(static_cast<std::size_t>(pack_groups(format, count))),
          dirty(code_bytes(format, count))};
  pack(format, values, run.params.data(), run.codes.data());
  return run;
}

std::vector<std::byte> packed_row(const PackFormat& format, const std::vector<Half>& values) {
  auto row = dirty(packed_row_bytes(format, static_cast<std::int64_t>(values.size())));
  pack_row(format, values, row.data());
  return row;
}

TEST(PackingVectors, RunsArePackedBitForBit) {
  ASSERT_GT(vectors()["runs"].size(), 100u);
  for (const auto& vector : vectors()["runs"]) {
    const auto input = floats(vectors()["inputs"][vector["input"].get<std::string>()]["f32"]);
    const auto run = packed(format_of(vector), input);
    EXPECT_EQ(bytes_of(run.params.data(), run.params.size() * sizeof(GroupParams)),
              from_hex<std::uint8_t>(vector["params"].get<std::string>()))
        << name_of(vector);
    EXPECT_EQ(bytes_of(run.codes.data(), run.codes.size()),
              from_hex<std::uint8_t>(vector["codes"].get<std::string>()))
        << name_of(vector);
  }
}

TEST(PackingVectors, RunsAreUnpackedBitForBit) {
  for (const auto& vector : vectors()["runs"]) {
    const auto params = from_hex<std::uint8_t>(vector["params"].get<std::string>());
    const auto codes = from_hex<std::uint8_t>(vector["codes"].get<std::string>());
    const auto expected = floats(vector["meaning"]);
    std::vector<GroupParams> groups(params.size() / sizeof(GroupParams));
    std::memcpy(groups.data(), params.data(), params.size());
    std::vector<float> values(expected.size());
    unpack(format_of(vector), groups.data(), reinterpret_cast<const std::byte*>(codes.data()),
           values);
    EXPECT_EQ(bits_of(values), bits_of(expected)) << name_of(vector);
  }
}

TEST(PackingVectors, RowsArePackedBitForBit) {
  ASSERT_GT(vectors()["rows"].size(), 100u);
  for (const auto& vector : vectors()["rows"]) {
    const auto input = halves(vectors()["inputs"][vector["input"].get<std::string>()]["f16"]);
    const auto row = packed_row(format_of(vector), input);
    EXPECT_EQ(bytes_of(row.data(), row.size()),
              from_hex<std::uint8_t>(vector["row"].get<std::string>()))
        << name_of(vector);
  }
}

TEST(PackingVectors, RowsAreUnpackedBitForBit) {
  for (const auto& vector : vectors()["rows"]) {
    const auto row = from_hex<std::uint8_t>(vector["row"].get<std::string>());
    const auto expected = halves(vector["meaning"]);
    std::vector<Half> values(expected.size());
    unpack_row(format_of(vector), reinterpret_cast<const std::byte*>(row.data()), values);
    EXPECT_TRUE(values == expected) << name_of(vector);
  }
}

// --- Bounds of what packing may cost.

/// How far f16 is from `x` at most: half of its last place, or of its least number.
double half_ulp(double x) { return std::max(std::abs(x) * 0x1p-11, 0x1p-25); }

/// How far a number of a group may be from what its code means. The scale is range / highest, in
/// f16: to nearest, or up by less than f16's least number; at most it is `scale`. A code is the
/// nearest, so it is off by half a scale: numbers below the rounded minimum by that rounding
/// besides, and those above the highest code's, which is short of the range by no more than two f16
/// places of the scale, highest * scale / 1024 < scale / 4, and the minimum's rounding. In f32 the
/// quotient has two roundings, and the number one.
double packing_bound(int bits, double smallest, double largest) {
  const double highest = (1 << bits) - 1;
  const double scale = (largest - smallest) / highest * (1 + 0x1p-11) + 0x1p-24;
  const double roundoff =
      highest * scale * 0x1p-22 + std::max(std::abs(smallest), std::abs(largest)) * 0x1p-23;
  return scale / 2 + half_ulp(smallest) + roundoff;
}

using Numbers = std::function<double(std::mt19937&)>;

struct Distribution {
  std::string name;
  /// Makes what a group's numbers are drawn from.
  std::function<Numbers(std::mt19937&)> group;
};

/// Numbers of a normal distribution times 2^(-40 to -20): around f16's least number, and below.
Numbers denormal_numbers(std::mt19937& random) {
  const double size = std::exp2(std::uniform_int_distribution(-40, -20)(random));
  return [size](std::mt19937& more) { return size * std::normal_distribution<>()(more); };
}

std::vector<Distribution> distributions() {
  using Random = std::mt19937;
  return {{"normal",
           [](Random&) -> Numbers {
             return [](Random& r) { return std::normal_distribution<>()(r); };
           }},
          {"constant",
           [](Random& random) -> Numbers {
             const double value = std::normal_distribution<>()(random);
             return [value](Random&) { return value; };
           }},
          {"heavy-tailed",
           [](Random&) -> Numbers {
             return [](Random& r) {
               return std::clamp(std::cauchy_distribution<>()(r), -65504.0, 65504.0);
             };
           }},
          {"denormal", denormal_numbers}};
}

/// Of `count` numbers, each `group` of them drawn together.
std::vector<float> drawn(const Distribution& distribution, std::int64_t count, std::int64_t group,
                         std::mt19937& random) {
  std::vector<float> values;
  Numbers numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i % group == 0) {
      numbers = distribution.group(random);
    }
    values.push_back(static_cast<float>(numbers(random)));
  }
  return values;
}

/// The bound of each number, by the extremes of its group.
std::vector<double> bounds(const PackFormat& format, const std::vector<float>& values) {
  std::vector<double> all;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto group = static_cast<std::size_t>(format.group);
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(i / group * group);
    const auto size = std::min<std::ptrdiff_t>(format.group, values.end() - first);
    const auto [smallest, largest] = std::minmax_element(first, first + size);
    all.push_back(packing_bound(bits_of(format.packing), *smallest, *largest));
  }
  return all;
}

/// Runs of every format, of many lengths and distributions.
void for_each_run(const std::function<void(const PackFormat&, const std::vector<float>&,
                                           const std::string&)>& check) {
  std::mt19937 random(91);
  for (const auto& distribution : distributions()) {
    for (const auto packing : kPackings) {
      for (const auto group : kGroups) {
        for (int repeat = 0; repeat < 50; ++repeat) {
          const auto count = std::uniform_int_distribution<std::int64_t>(1, 400)(random);
          check({packing, group}, drawn(distribution, count, group, random), distribution.name);
        }
      }
    }
  }
}

TEST(PackingBounds, RunsAreWithinHalfAScale) {
  for_each_run(
      [](const PackFormat& format, const std::vector<float>& values, const std::string& name) {
        const auto run = packed(format, values);
        std::vector<float> meaning(values.size());
        unpack(format, run.params.data(), run.codes.data(), meaning);
        const auto allowed = bounds(format, values);
        for (std::size_t i = 0; i < values.size(); ++i) {
          ASSERT_LE(std::abs(static_cast<double>(values[i]) - meaning[i]), allowed[i])
              << name << ", " << describe(format) << ", number " << i << " of " << values.size();
        }
      });
}

/// In a row minima are f16 already, but what the codes mean is rounded to f16.
TEST(PackingBounds, RowsAreWithinHalfAScale) {
  for_each_run(
      [](const PackFormat& format, const std::vector<float>& values, const std::string& name) {
        std::vector<Half> row_values(values.size());
        std::transform(values.begin(), values.end(), row_values.begin(), to_half);
        std::vector<float> exact(values.size());
        std::transform(row_values.begin(), row_values.end(), exact.begin(), to_float);
        const auto row = packed_row(format, row_values);
        std::vector<Half> meaning(values.size());
        unpack_row(format, row.data(), meaning);
        const auto allowed = bounds(format, exact);
        for (std::size_t i = 0; i < values.size(); ++i) {
          const double mean = to_float(meaning[i]);
          ASSERT_LE(std::abs(exact[i] - mean), allowed[i] + half_ulp(mean))
              << name << ", " << describe(format) << ", number " << i << " of " << values.size();
        }
      });
}

// --- Sizes and names.

struct Sizes {
  PackFormat format;
  std::int64_t count;
  std::int64_t groups, codes, params, row;
};

TEST(PackingLayout, SizesAreThoseOfTheFormat) {
  constexpr auto int4 = Packing::int4;
  constexpr auto int8 = Packing::int8;
  const std::vector<Sizes> all = {
      {{int4, 64}, 1, 1, 16, 16, 32},           {{int4, 64}, 32, 1, 16, 16, 32},
      {{int4, 64}, 33, 1, 32, 16, 48},          {{int4, 64}, 65, 2, 48, 16, 64},
      {{int4, 32}, 128, 4, 64, 16, 80},         {{int4, 32}, 129, 5, 80, 32, 112},
      {{int4, 128}, 4096, 32, 2048, 128, 2176}, {{int8, 64}, 1, 1, 32, 16, 48},
      {{int8, 64}, 64, 1, 64, 16, 80},          {{int8, 32}, 200, 7, 224, 32, 256},
      {{int8, 128}, 640, 5, 640, 32, 672},
  };
  for (const auto& sizes : all) {
    const auto about = describe(sizes.format) + ", " + std::to_string(sizes.count);
    EXPECT_EQ(pack_groups(sizes.format, sizes.count), sizes.groups) << about;
    EXPECT_EQ(code_bytes(sizes.format, sizes.count), sizes.codes) << about;
    EXPECT_EQ(row_params_bytes(sizes.format, sizes.count), sizes.params) << about;
    EXPECT_EQ(packed_row_bytes(sizes.format, sizes.count), sizes.row) << about;
  }
}

TEST(PackFormat, IsTheSameWithoutPackingWhateverTheGroups) {
  EXPECT_EQ((PackFormat{Packing::none, 32}), (PackFormat{Packing::none, 64}));
  EXPECT_NE((PackFormat{Packing::int4, 32}), (PackFormat{Packing::int4, 64}));
  EXPECT_NE((PackFormat{Packing::int4, 64}), (PackFormat{Packing::int8, 64}));
  EXPECT_FALSE(PackFormat{}.packed());
  EXPECT_TRUE((PackFormat{Packing::int8}).packed());
}

TEST(PackFormat, Describes) {
  EXPECT_EQ(describe({Packing::int4, 64}), "int4, groups of 64");
  EXPECT_EQ(describe({Packing::none, 64}), "f16");
}

TEST(ParsePacking, ReadsTheNamesItWrites) {
  EXPECT_EQ(parse_packing("none", "--x"), Packing::none);
  EXPECT_EQ(parse_packing("int8", "--x"), Packing::int8);
  EXPECT_EQ(parse_packing("int4", "--x"), Packing::int4);
  EXPECT_EQ(to_string(Packing::none), "none");
  EXPECT_EQ(to_string(Packing::int8), "int8");
  EXPECT_EQ(to_string(Packing::int4), "int4");
}

TEST(ParsePacking, NamesTheFlagAndWhatThereIs) {
  for (const std::string text : {"int3", "", "INT4", "int4 "}) {
    try {
      parse_packing(text, "--weights");
      ADD_FAILURE() << "took \"" << text << '"';
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("--weights"), HasSubstr(text), HasSubstr("int4"),
                                      HasSubstr("int8"), HasSubstr("none")));
    }
  }
}

}  // namespace
}  // namespace stagecoach
