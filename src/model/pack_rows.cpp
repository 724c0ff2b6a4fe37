#include "model/pack_rows.hpp"

#include <algorithm>
#include <cstring>
#include <future>
#include <vector>

#include "base/error.hpp"

namespace stagecoach::model {
namespace {

bool is_nan(Half value) { return (value.bits & 0x7fff) > 0x7c00; }

std::int64_t nan_groups(const PackFormat& format, std::int64_t columns, const std::byte* row) {
  std::int64_t count = 0;
  for (std::int64_t group = 0; group < pack_groups(format, columns); ++group) {
    GroupParams params;
    std::memcpy(&params, row + group * std::int64_t{sizeof(params)}, sizeof(params));
    count += is_nan(params.minimum);
  }
  return count;
}

std::int64_t pack_in_turn(PackFormat format, std::span<const Half> values, std::size_t columns,
                          std::byte* out) {
  const auto width = static_cast<std::int64_t>(columns);
  std::int64_t count = 0;
  for (std::size_t at = 0; at < values.size(); at += columns) {
    pack_row(format, values.subspan(at, columns), out);
    count += nan_groups(format, width, out);
    out += packed_row_bytes(format, width);
  }
  return count;
}

}  // namespace

std::int64_t pack_rows(const PackFormat& format, std::span<const Half> values, std::int64_t columns,
                       std::span<std::byte> out, int threads) {
  const auto width = static_cast<std::size_t>(columns);
  const auto row_bytes = static_cast<std::size_t>(packed_row_bytes(format, columns));
  const auto rows = values.size() / width;
  STAGECOACH_CHECK(values.size() == rows * width && out.size() == rows * row_bytes);
  const auto share =
      (rows + static_cast<std::size_t>(threads) - 1) / static_cast<std::size_t>(threads);
  std::vector<std::future<std::int64_t>> parts;
  for (std::size_t first = 0; first < rows; first += share) {
    const auto part = values.subspan(first * width, std::min(share, rows - first) * width);
    parts.push_back(std::async(std::launch::async, pack_in_turn, format, part, width,
                               out.data() + first * row_bytes));
  }
  std::int64_t count = 0;
  for (auto& part : parts) {
    count += part.get();
  }
  return count;
}

}  // namespace stagecoach::model
