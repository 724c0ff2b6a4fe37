#include "base/packing.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace stagecoach {
namespace {

constexpr std::array<std::pair<Packing, const char*>, 3> kNames = {
    {{Packing::none, "none"}, {Packing::int8, "int8"}, {Packing::int4, "int4"}}};

constexpr float kLeastNormal = 0x1p-14f;
constexpr float kLeastStep = 0x1p-24f;

constexpr GroupParams kNotANumber{{0x7e00}, {0}};

constexpr std::int64_t kInt4Half = kCodeBlock / 2;
constexpr std::int64_t kLargestGroup = 128;

// Numbers and codes of a group, in whole blocks, so that loops over them become vectors.
using GroupValues = std::array<float, kLargestGroup>;
using GroupCodes = std::array<std::uint8_t, kLargestGroup>;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::int64_t whole_blocks(std::int64_t count) {
  return (count + kCodeBlock - 1) / kCodeBlock * kCodeBlock;
}

unsigned highest_code(Packing packing) { return packing == Packing::int4 ? 15 : 255; }

bool is_finite(Half value) { return (value.bits & 0x7c00) != 0x7c00; }

Half next_up(Half positive) { return {static_cast<std::uint16_t>(positive.bits + 1)}; }
Half next_down(Half positive) { return {static_cast<std::uint16_t>(positive.bits - 1)}; }

// to_float without branches.
float widen(Half value) {
  constexpr std::uint32_t kRebias = 112u << 23;
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const float small = static_cast<float>(static_cast<std::int32_t>(magnitude)) * kLeastStep;
  const std::uint32_t normal = (magnitude << 13) + kRebias;
  const std::uint32_t finite = magnitude < 0x400u ? std::bit_cast<std::uint32_t>(small) : normal;
  return std::bit_cast<float>(sign | (magnitude < 0x7c00u ? finite : normal + kRebias));
}

// In double nothing is rounded: all three are multiples of 2^-24 and small. Then rounded once.
float number_of(unsigned code, float minimum, float scale) {
  return static_cast<float>(static_cast<double>(static_cast<int>(code)) * scale + minimum);
}

Half scale_of(float minimum, float exact, unsigned highest) {
  auto scale = to_half(exact);
  if (exact < kLeastNormal && to_float(scale) < exact) {
    scale = exact < kLeastStep ? Half{1} : next_up(scale);
  }
  if (is_finite(scale) && !is_finite(to_half(number_of(highest, minimum, to_float(scale))))) {
    scale = next_down(scale);
  }
  return scale;
}

struct Range {
  float smallest = 0;
  float largest = 0;
  bool finite = true;
};

// Of whole blocks.
Range range_of(const GroupValues& values, std::int64_t count) {
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> smallest{};
  std::array<float, kLanes> largest{};
  std::array<std::int32_t, kLanes> magnitude{};
  std::copy_n(values.begin(), kLanes, smallest.begin());
  std::copy_n(values.begin(), kLanes, largest.begin());
  for (std::size_t i = 0; i < at(count); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[i + lane];
      const std::int32_t bits = std::bit_cast<std::int32_t>(value) & 0x7fffffff;
      smallest[lane] = value < smallest[lane] ? value : smallest[lane];
      largest[lane] = value > largest[lane] ? value : largest[lane];
      magnitude[lane] = bits > magnitude[lane] ? bits : magnitude[lane];
    }
  }
  return {*std::min_element(smallest.begin(), smallest.end()),
          *std::max_element(largest.begin(), largest.end()),
          *std::max_element(magnitude.begin(), magnitude.end()) < 0x7f800000};
}

void find_codes(const GroupValues& values, std::int64_t count, float minimum, float scale,
                float highest, GroupCodes& codes) {
  constexpr float kWhole =
      0x1.8p23f;  // a sum with it is rounded to a whole number, in its last bits
  for (std::size_t i = 0; i < at(count); ++i) {
    const float code = (values[i] - minimum) / scale;
    const float low = code > 0 ? code : 0.0f;
    const float cut = low < highest ? low : highest;
    codes[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(cut + kWhole));
  }
}

void put_codes(Packing packing, const GroupCodes& codes, std::int64_t count, std::byte* to) {
  if (packing == Packing::int8) {
    std::memcpy(to, codes.data(), at(count));
    return;
  }
  for (std::int64_t block = 0; block < count; block += kCodeBlock) {
    for (std::int64_t j = 0; j < kInt4Half; ++j) {
      to[block / 2 + j] =
          static_cast<std::byte>(codes[at(block + j)] | (codes[at(block + j + kInt4Half)] << 4));
    }
  }
}

void get_codes(Packing packing, const std::byte* from, std::int64_t count, GroupCodes& codes) {
  if (packing == Packing::int8) {
    std::memcpy(codes.data(), from, at(count));
    return;
  }
  for (std::int64_t block = 0; block < count; block += kCodeBlock) {
    for (std::int64_t j = 0; j < kInt4Half; ++j) {
      const auto byte = std::to_integer<std::uint8_t>(from[block / 2 + j]);
      codes[at(block + j)] = byte & 15u;
      codes[at(block + j + kInt4Half)] = static_cast<std::uint8_t>(byte >> 4);
    }
  }
}

// Packs the first `size` values; changes what is behind them.
GroupParams pack_group(const PackFormat& format, GroupValues& values, std::int64_t size,
                       std::byte* to) {
  const std::int64_t count = whole_blocks(size);
  std::fill(values.begin() + size, values.begin() + count, values[0]);
  const auto range = range_of(values, count);
  const auto params =
      range.finite ? group_params(format, range.smallest, range.largest) : kNotANumber;
  GroupCodes codes{};
  if (params.scale.bits != 0) {
    find_codes(values, count, to_float(params.minimum), to_float(params.scale),
               static_cast<float>(highest_code(format.packing)), codes);
    std::fill(codes.begin() + size, codes.begin() + count, std::uint8_t{0});
  }
  put_codes(format.packing, codes, count, to);
  return params;
}

void unpack_group(Packing packing, const GroupParams& params, const std::byte* from,
                  std::int64_t size, GroupValues& values) {
  const std::int64_t count = whole_blocks(size);
  const float minimum = to_float(params.minimum);
  const float scale = to_float(params.scale);
  GroupCodes codes;
  get_codes(packing, from, count, codes);
  for (std::size_t i = 0; i < at(count); ++i) {
    values[i] = number_of(codes[i], minimum, scale);
  }
}

}  // namespace

Packing parse_packing(const std::string& text, const std::string& flag) {
  for (const auto& [packing, name] : kNames) {
    if (text == name) {
      return packing;
    }
  }
  throw ConfigError(fmt::format("{} {}: must be one of int4, int8, none", flag, text));
}

std::string to_string(Packing packing) {
  return kNames.at(static_cast<std::size_t>(packing)).second;
}

std::string describe(const PackFormat& format) {
  return format.packed() ? fmt::format("{}, groups of {}", to_string(format.packing), format.group)
                         : "f16";
}

GroupParams group_params(const PackFormat& format, float smallest, float largest) {
  if (!std::isfinite(smallest) || !std::isfinite(largest)) {
    return kNotANumber;
  }
  // Of zeros of both signs, which one a minimum finds depends on their order.
  smallest += 0.0f;
  largest += 0.0f;
  const auto highest = highest_code(format.packing);
  const auto minimum = to_half(smallest);
  const auto scale =
      scale_of(to_float(minimum), (largest - smallest) / static_cast<float>(highest), highest);
  return is_finite(minimum) && is_finite(scale) ? GroupParams{minimum, scale} : kNotANumber;
}

void pack(const PackFormat& format, std::span<const float> values, GroupParams* params,
          std::byte* codes) {
  const auto count = static_cast<std::int64_t>(values.size());
  GroupValues group;
  for (std::int64_t first = 0; first < count; first += format.group) {
    const auto size = std::min(format.group, count - first);
    std::copy_n(values.begin() + first, size, group.begin());
    *params++ = pack_group(format, group, size, codes + code_bytes(format, first));
  }
}

void unpack(const PackFormat& format, const GroupParams* params, const std::byte* codes,
            std::span<float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  GroupValues group;
  for (std::int64_t first = 0; first < count; first += format.group) {
    const auto size = std::min(format.group, count - first);
    unpack_group(format.packing, *params++, codes + code_bytes(format, first), size, group);
    std::copy_n(group.begin(), size, values.begin() + first);
  }
}

void pack_row(const PackFormat& format, std::span<const Half> values, std::byte* row) {
  const auto count = static_cast<std::int64_t>(values.size());
  const auto before_codes = row_params_bytes(format, count);
  std::memset(row, 0, at(before_codes));
  GroupValues group;
  for (std::int64_t first = 0; first < count; first += format.group) {
    const auto size = std::min(format.group, count - first);
    std::transform(values.begin() + first, values.begin() + first + size, group.begin(), widen);
    const auto params =
        pack_group(format, group, size, row + before_codes + code_bytes(format, first));
    std::memcpy(row + first / format.group * 4, &params, sizeof params);
  }
}

void unpack_row(const PackFormat& format, const std::byte* row, std::span<Half> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const auto* codes = row + row_params_bytes(format, count);
  GroupValues group;
  for (std::int64_t first = 0; first < count; first += format.group) {
    const auto size = std::min(format.group, count - first);
    GroupParams params;
    std::memcpy(&params, row + first / format.group * 4, sizeof params);
    unpack_group(format.packing, params, codes + code_bytes(format, first), size, group);
    std::transform(group.begin(), group.begin() + size, values.begin() + first, to_half);
  }
}

}  // namespace stagecoach
