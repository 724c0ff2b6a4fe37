#include "base/hash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace stagecoach {
namespace {

std::vector<std::byte> sequence(std::size_t length, std::size_t factor, std::size_t modulus) {
  std::vector<std::byte> bytes(length);
  for (std::size_t i = 0; i < length; ++i) {
    bytes[i] = static_cast<std::byte>(i * factor % modulus);
  }
  return bytes;
}

/// Expected values: xxhash.xxh3_64_hexdigest of Python's xxhash 3. The lengths reach each of XXH3's
/// ways: 0, 1-3, 4-8, 9-16, 17-128, 129-240 bytes, one block and several.
TEST(Hash, IsXxh3) {
  EXPECT_EQ(hash_to_hex(hash_string("")), "2d06800538d394c2");
  EXPECT_EQ(hash_to_hex(hash_string("a")), "e6c632b61e964e1f");
  EXPECT_EQ(hash_to_hex(hash_string("abc")), "78af5f94892f3950");
  EXPECT_EQ(hash_to_hex(hash_string("hello, world")), "302cd5fba73d006c");
  EXPECT_EQ(hash_to_hex(hash_bytes(sequence(16, 1, 256))), "8355e3a6f61770db");
  EXPECT_EQ(hash_to_hex(hash_bytes(sequence(100, 1, 256))), "004e4f921a64bd1c");
  EXPECT_EQ(hash_to_hex(hash_bytes(sequence(200, 1, 256))), "f42a8864feaf0703");
  EXPECT_EQ(hash_to_hex(hash_bytes(sequence(1000, 7, 251))), "d1eb8367bf3294e7");
  EXPECT_EQ(hash_to_hex(hash_bytes(sequence(5000, 7, 251))), "ce29a19460ee1bfc");
}

TEST(Hash, DoesNotDependOnThePieces) {
  const auto bytes = sequence(5000, 7, 251);
  for (const std::size_t piece : {1, 13, 256, 1024, 4999, 5000}) {
    StreamingHash hash;
    hash.update({});
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      hash.update(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    }
    EXPECT_EQ(hash_to_hex(hash.digest()), "ce29a19460ee1bfc") << piece;
  }
}

TEST(Hash, OfNothingIsThatOfAnEmptyString) {
  EXPECT_EQ(hash_to_hex(StreamingHash().digest()), "2d06800538d394c2");
}

/// The published first outputs of SplitMix64 with seed 1234567: its state grows by the same
/// constant that mix_bits adds.
TEST(MixBits, IsSplitMix64) {
  const std::uint64_t expected[] = {6457827717110365317ull, 3203168211198807973ull,
                                    9817491932198370423ull, 4593380528125082431ull,
                                    16408922859458223821ull};
  std::uint64_t state = 1234567;
  for (const auto value : expected) {
    EXPECT_EQ(mix_bits(state), value);
    state += 0x9e3779b97f4a7c15ull;
  }
}

}  // namespace
}  // namespace stagecoach
