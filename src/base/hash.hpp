#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace stagecoach {

/// XXH3-64 of a byte string (https://github.com/Cyan4973/xxHash, the unseeded variant).
std::uint64_t hash_bytes(std::span<const std::byte> bytes) noexcept;
std::uint64_t hash_string(std::string_view text) noexcept;

/// Sixteen lower-case hexadecimal digits.
std::string hash_to_hex(std::uint64_t hash);

/// The same hash over bytes that come in pieces.
class StreamingHash {
 public:
  StreamingHash();
  void update(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t digest() const;

 private:
  struct State;
  struct Free {
    void operator()(State* state) const noexcept;
  };
  std::unique_ptr<State, Free> state_;
};

/// A bijective mix of 64 bits (the SplitMix64 finaliser): the counter-based generator behind
/// sampling and dummy weights. Equal inputs give equal outputs on every machine.
constexpr std::uint64_t mix_bits(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace stagecoach
