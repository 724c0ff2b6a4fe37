#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace stagecoach {

/// Appends values to a byte vector, for messages between ranks of one binary (native byte order).
class ByteWriter {
 public:
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), first, first + sizeof(T));
  }

  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void put_vector(const std::vector<T>& values) {
    put<std::uint64_t>(values.size());
    const auto raw = std::as_bytes(std::span<const T>(values));
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }

  void put_string(const std::string& value) {
    put_vector(std::vector<char>(value.begin(), value.end()));
  }

  [[nodiscard]] std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads back what ByteWriter wrote. Throws FormatError when the bytes end too early.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value;
    std::memcpy(&value, next(sizeof(T)).data(), sizeof(T));
    return value;
  }

  template <typename T>
  requires std::is_trivially_copyable_v<T> std::vector<T> get_vector() {
    const auto count = get<std::uint64_t>();
    const auto raw = next(checked_product(count, sizeof(T)));
    std::vector<T> values(count);
    if (count > 0) {
      std::memcpy(values.data(), raw.data(), raw.size());
    }
    return values;
  }

  std::string get_string() {
    const auto characters = get_vector<char>();
    return {characters.begin(), characters.end()};
  }

  /// Throws FormatError when bytes are left over.
  void expect_end() const;

 private:
  std::span<const std::byte> next(std::size_t size_bytes);
  [[nodiscard]] std::size_t checked_product(std::uint64_t count, std::size_t size_bytes) const;

  std::span<const std::byte> rest_;
};

}  // namespace stagecoach
