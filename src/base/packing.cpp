#include "base/packing.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace stagecoach {
namespace {

constexpr std::array<std::pair<Packing, const char*>, 3> kNames = {
    {{Packing::none, "none"}, {Packing::int8, "int8"}, {Packing::int4, "int4"}}};

constexpr float kLeastNormal = 0x1p-14f;
constexpr float kLeastStep = 0x1p-24f;

constexpr GroupParams kNotANumber{{0x7e00}, {0}};

constexpr std::int64_t kInt4Half = kCodeBlock / 2;

float highest_code(const PackFormat& format) { return format.packing == Packing::int4 ? 15 : 255; }

bool is_finite(Half value) { return (value.bits & 0x7c00) != 0x7c00; }

Half next_up(Half positive) { return {static_cast<std::uint16_t>(positive.bits + 1)}; }
Half next_down(Half positive) { return {static_cast<std::uint16_t>(positive.bits - 1)}; }

float number_of(float code, float minimum, float scale) { return std::fma(code, scale, minimum); }

Half scale_of(float minimum, float exact, float highest) {
  auto scale = to_half(exact);
  if (exact < kLeastNormal && to_float(scale) < exact) {
    scale = exact < kLeastStep ? Half{1} : next_up(scale);
  }
  if (is_finite(scale) && !is_finite(to_half(number_of(highest, minimum, to_float(scale))))) {
    scale = next_down(scale);
  }
  return scale;
}

GroupParams params_of(const PackFormat& format, std::span<const float> values) {
  float smallest = values[0];
  float largest = values[0];
  bool finite = true;
  for (const auto value : values) {
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
    finite = finite && std::isfinite(value);
  }
  return finite ? group_params(format, smallest, largest) : kNotANumber;
}

void put_code(const PackFormat& format, std::int64_t index, unsigned code, std::byte* codes) {
  if (format.packing == Packing::int8) {
    codes[index] = static_cast<std::byte>(code);
    return;
  }
  const auto inside = index % kCodeBlock;
  auto& byte = codes[index / kCodeBlock * kInt4Half + inside % kInt4Half];
  byte |= static_cast<std::byte>(code << (inside < kInt4Half ? 0 : 4));
}

unsigned get_code(const PackFormat& format, std::int64_t index, const std::byte* codes) {
  if (format.packing == Packing::int8) {
    return std::to_integer<unsigned>(codes[index]);
  }
  const auto inside = index % kCodeBlock;
  const auto byte =
      std::to_integer<unsigned>(codes[index / kCodeBlock * kInt4Half + inside % kInt4Half]);
  return inside < kInt4Half ? byte & 15u : byte >> 4;
}

unsigned code_of(float value, float minimum, float scale, float highest) {
  if (!(scale > 0)) {
    return 0;
  }
  const float code = std::nearbyint((value - minimum) / scale);
  return static_cast<unsigned>(std::clamp(code, 0.0f, highest));
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
  const float highest = highest_code(format);
  const auto minimum = to_half(smallest);
  const auto scale = scale_of(to_float(minimum), (largest - smallest) / highest, highest);
  return is_finite(minimum) && is_finite(scale) ? GroupParams{minimum, scale} : kNotANumber;
}

void pack(const PackFormat& format, std::span<const float> values, GroupParams* params,
          std::byte* codes) {
  const auto count = static_cast<std::int64_t>(values.size());
  const float highest = highest_code(format);
  std::memset(codes, 0, static_cast<std::size_t>(code_bytes(format, count)));
  for (std::int64_t first = 0; first < count; first += format.group) {
    const auto size = std::min(format.group, count - first);
    const auto group =
        values.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size));
    const auto found = params_of(format, group);
    *params++ = found;
    const float minimum = to_float(found.minimum);
    const float scale = to_float(found.scale);
    for (std::int64_t i = 0; i < size; ++i) {
      put_code(format, first + i,
               code_of(group[static_cast<std::size_t>(i)], minimum, scale, highest), codes);
    }
  }
}

void unpack(const PackFormat& format, const GroupParams* params, const std::byte* codes,
            std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    const auto& group = params[index / format.group];
    values[i] = number_of(static_cast<float>(get_code(format, index, codes)),
                          to_float(group.minimum), to_float(group.scale));
  }
}

void pack_row(const PackFormat& format, std::span<const Half> values, std::byte* row) {
  std::vector<float> wide(values.size());
  std::transform(values.begin(), values.end(), wide.begin(), to_float);
  const auto count = static_cast<std::int64_t>(values.size());
  const auto before_codes = row_params_bytes(format, count);
  std::vector<GroupParams> params(static_cast<std::size_t>(pack_groups(format, count)));
  pack(format, wide, params.data(), row + before_codes);
  std::memset(row, 0, static_cast<std::size_t>(before_codes));
  std::memcpy(row, params.data(), params.size() * sizeof(GroupParams));
}

void unpack_row(const PackFormat& format, const std::byte* row, std::span<Half> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<GroupParams> params(static_cast<std::size_t>(pack_groups(format, count)));
  std::memcpy(params.data(), row, params.size() * sizeof(GroupParams));
  std::vector<float> wide(values.size());
  unpack(format, params.data(), row + row_params_bytes(format, count), wide);
  std::transform(wide.begin(), wide.end(), values.begin(), to_half);
}

}  // namespace stagecoach
