#include "base/bytes.hpp"

#include "base/error.hpp"

namespace stagecoach {

std::span<const std::byte> ByteReader::next(std::size_t size_bytes) {
  if (size_bytes > rest_.size()) {
    throw FormatError(
        fmt::format("message too short: {} bytes wanted, {} left", size_bytes, rest_.size()));
  }
  const auto taken = rest_.first(size_bytes);
  rest_ = rest_.subspan(size_bytes);
  return taken;
}

std::size_t ByteReader::checked_product(std::uint64_t count, std::size_t size_bytes) const {
  if (count > rest_.size() / size_bytes) {
    throw FormatError(fmt::format("message too short: {} items of {} bytes wanted, {} bytes left",
                                  count, size_bytes, rest_.size()));
  }
  return count * size_bytes;
}

void ByteReader::expect_end() const {
  if (!rest_.empty()) {
    throw FormatError(fmt::format("message has {} bytes too many", rest_.size()));
  }
}

}  // namespace stagecoach
