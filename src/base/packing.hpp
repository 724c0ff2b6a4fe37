#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/half.hpp"

namespace stagecoach {

/// How numbers are kept: as they are, or as small integers in groups with a minimum and a scale
/// each (group-wise asymmetric quantization, FlexGen section 5).
enum class Packing { none, int8, int4 };

inline constexpr std::array<std::int64_t, 3> kPackGroups{32, 64, 128};

struct PackFormat {
  Packing packing = Packing::none;
  std::int64_t group = 64;  ///< numbers of one group: one of kPackGroups

  [[nodiscard]] constexpr bool packed() const { return packing != Packing::none; }
  /// Formats that keep numbers as they are do not differ in their groups.
  friend bool operator==(const PackFormat& a, const PackFormat& b) {
    return a.packing == b.packing && (a.packing == Packing::none || a.group == b.group);
  }
};

/// "none", "int8", "int4". ConfigError names `flag` and the names there are.
Packing parse_packing(const std::string& text, const std::string& flag);
std::string to_string(Packing packing);
/// "int4, groups of 64"; "f16" for none.
std::string describe(const PackFormat& format);

/// What a group's codes mean: number = minimum + code * scale, in f32 with one rounding.
struct GroupParams {
  Half minimum;
  Half scale;
};
static_assert(sizeof(GroupParams) == 4);

/// A packed run of `count` numbers is its groups' parameters, and its codes. The last group has
/// what is left. Codes come in blocks of 32, the last one filled up with zeros. int8: a byte each,
/// in order. int4: 16 bytes, byte j holding code j in its lower and code j + 16 in its upper half.
inline constexpr std::int64_t kCodeBlock = 32;
constexpr std::int64_t pack_groups(const PackFormat& format, std::int64_t count) {
  return (count + format.group - 1) / format.group;
}
constexpr std::int64_t code_bytes(const PackFormat& format, std::int64_t count) {
  return (count + kCodeBlock - 1) / kCodeBlock * (format.packing == Packing::int4 ? 16 : 32);
}

/// A row of a packed matrix is one run: its parameters, zeros up to a multiple of 16 bytes, its
/// codes. So rows are whole groups, and codes begin at multiples of 16 from the row's start.
constexpr std::int64_t row_params_bytes(const PackFormat& format, std::int64_t count) {
  return (pack_groups(format, count) * 4 + 15) / 16 * 16;
}
constexpr std::int64_t packed_row_bytes(const PackFormat& format, std::int64_t count) {
  return row_params_bytes(format, count) + code_bytes(format, count);
}

/// Quantizes `values`. The minimum is rounded to f16, to nearest even, and so is the scale,
/// (largest - smallest) / (2^bits - 1) in f32, where an extreme of -0 counts as +0; codes are
/// (value - minimum) / scale by the f16 numbers as stored, in f32, rounded to nearest even and cut
/// to what the bits hold. Where nearest would do harm: a scale below f16's normal range is rounded
/// up, so that a group's range is covered; and one whose highest code would be rounded to infinity
/// in f16 is taken a step down. All numbers alike: scale 0. A group with a number that is not
/// finite, or whose minimum or scale is beyond f16 (before that step), is NaN throughout: minimum
/// 0x7e00, scale and codes 0.
/// `params`: pack_groups; `codes`: code_bytes, both of the whole run.
void pack(const PackFormat& format, std::span<const float> values, GroupParams* params,
          std::byte* codes);
/// The parameters of a group by its smallest and largest number; NaN where one is not finite.
GroupParams group_params(const PackFormat& format, float smallest, float largest);
/// What the codes mean.
void unpack(const PackFormat& format, const GroupParams* params, const std::byte* codes,
            std::span<float> values);

/// The same for a row of a matrix, from f16. What a row means is rounded to f16 as well: a packed
/// weight is an f16 number on every device.
void pack_row(const PackFormat& format, std::span<const Half> values, std::byte* row);
void unpack_row(const PackFormat& format, const std::byte* row, std::span<Half> values);

}  // namespace stagecoach
