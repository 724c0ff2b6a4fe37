#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/packing.hpp"
#include "unit/device/device_cases.hpp"

namespace stagecoach::test {

inline std::vector<PackFormat> pack_formats() {
  std::vector<PackFormat> all;
  for (const auto packing : {Packing::int8, Packing::int4}) {
    for (const auto group : kPackGroups) {
      all.push_back({packing, group});
    }
  }
  return all;
}

/// A packed matrix of exactly the size that may be read, `shift` bytes past where it was allocated,
/// and the f16 numbers that it means by base/packing.
struct PackedMatrix {
  PackedMatrix(const PackFormat& row_format, std::int64_t num_rows, std::int64_t num_columns,
               const std::vector<Half>& values, std::size_t shift = 0)
      : format(row_format),
        rows(num_rows),
        columns(num_columns),
        first(shift),
        bytes(shift + at(num_rows * packed_row_bytes(row_format, num_columns))),
        meaning(at(num_rows * num_columns)) {
    for (std::int64_t row = 0; row < rows; ++row) {
      auto* const to = bytes.data() + first + row * packed_row_bytes(format, columns);
      pack_row(format, std::span(values).subspan(at(row * columns), at(columns)), to);
      unpack_row(format, to, std::span(meaning).subspan(at(row * columns), at(columns)));
    }
  }
  PackedMatrix(const PackFormat& row_format, std::int64_t num_rows, std::int64_t num_columns,
               unsigned seed, std::size_t shift = 0)
      : PackedMatrix(row_format, num_rows, num_columns, random_halves(num_rows * num_columns, seed),
                     shift) {}

  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
  [[nodiscard]] device::Weights weights() const { return {bytes.data() + first, format}; }
  [[nodiscard]] std::string what() const {
    return fmt::format("{}, {} x {}, shifted by {}", describe(format), rows, columns, first);
  }

  PackFormat format;
  std::int64_t rows;
  std::int64_t columns;
  std::size_t first;
  std::vector<std::byte> bytes;
  std::vector<Half> meaning;
};

}  // namespace stagecoach::test
