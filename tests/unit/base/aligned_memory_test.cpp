#include "base/aligned_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/error.hpp"

namespace stagecoach {
namespace {

TEST(RoundUp, GivesTheNextMultiple) {
  EXPECT_EQ(round_up(0, 8), 0u);
  EXPECT_EQ(round_up(1, 8), 8u);
  EXPECT_EQ(round_up(8, 8), 8u);
  EXPECT_EQ(round_up(9, 8), 16u);
  EXPECT_EQ(round_up(10, 3), 12u);
}

TEST(AlignedMemory, IsAlignedZeroedAndWritable) {
  for (const std::size_t size :
       {std::size_t{1}, kPageBytes, kPageBytes + 1, std::size_t{1} << 20}) {
    const AlignedMemory memory(size, "a test");
    ASSERT_EQ(memory.size_bytes(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % kPageBytes, 0u);
    EXPECT_EQ(std::count(memory.bytes().begin(), memory.bytes().end(), std::byte{0}),
              static_cast<std::ptrdiff_t>(size));
    memory.bytes().back() = std::byte{1};
  }
}

TEST(AlignedMemory, MayBeEmpty) {
  const AlignedMemory memory(0, "a test");
  EXPECT_EQ(memory.data(), nullptr);
  EXPECT_TRUE(memory.bytes().empty());
}

TEST(AlignedMemory, Moves) {
  AlignedMemory first(100, "a test");
  first.data()[0] = std::byte{7};
  const auto* address = first.data();
  AlignedMemory second(std::move(first));
  EXPECT_EQ(second.data(), address);
  AlignedMemory third(5, "a test");
  third = std::move(second);
  EXPECT_EQ(third.data(), address);
  EXPECT_EQ(third.size_bytes(), 100u);
  EXPECT_EQ(third.data()[0], std::byte{7});
}

TEST(AlignedMemory, NamesWhatItCannotTakeMemoryFor) {
  try {
    const AlignedMemory memory(std::numeric_limits<std::size_t>::max() / 2, "the KV cache");
    FAIL() << "took it";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("the KV cache"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace stagecoach
