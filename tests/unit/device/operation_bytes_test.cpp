#include "device/cuda/operation_bytes.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace stagecoach::test {
namespace {

using device::ScratchShape;
using device::cuda::host_scratch_bytes;
using device::cuda::scratch_bytes;

// OPT-30b with GPU batches of 32 and sequences of 544 tokens.
ScratchShape opt_30b() {
  return {.max_in_features = 4 * 7168,
          .head_dim = 128,
          .page_tokens = 16,
          .vocab = 50272,
          .sparse_tokens = 0,
          .heads = 56,
          .kv_heads = 56,
          .max_rows = 1024,
          .max_sequences = 32,
          .longest_pages = 34};
}

constexpr std::size_t kMiB = std::size_t{1} << 20;

// In this program, which may have been built without CUDA. By hand: products take 32 MiB of
// workspace and 512 rows of x in f16, 28 MiB. Attention to runs of 256 tokens has 3 runs, so a row
// takes 56 * 3 * 130 floats; a wave of rows ends at 32 MiB. The largest of them is the scratch.
TEST(OperationBytes, OfProductsByHand) {
  const auto bytes = device::cuda::product_bytes(opt_30b());
  EXPECT_EQ(bytes.scratch, 60 * kMiB);
  EXPECT_EQ(device::cuda::attention_bytes(opt_30b()).scratch, 32 * kMiB);
  EXPECT_EQ(device::cuda::OperationLayout::of(opt_30b()).scratch, 60 * kMiB);
}

// Two rings of four pieces of 2 MiB, and rings of four operations each way: the most that one
// downloads are 1000 listed tokens of 8 bytes and 24 bytes beside them for each of 1024 rows.
TEST(OperationBytes, OfTheHostByHand) {
  const auto layout = device::cuda::OperationLayout::of(opt_30b());
  EXPECT_EQ(layout.download, std::size_t{4 * 1024} * (8 * 1000 + 24));
  EXPECT_EQ(host_scratch_bytes(opt_30b()), 16 * kMiB + layout.upload + layout.download);
}

TEST(OperationBytes, GrowWithTheShape) {
  const auto with = [](std::int64_t ScratchShape::*member, std::int64_t times) {
    auto shape = opt_30b();
    shape.*member *= times;
    return shape;
  };
  EXPECT_GT(scratch_bytes(with(&ScratchShape::max_in_features, 2)), scratch_bytes(opt_30b()));
  for (const auto member :
       {&ScratchShape::max_rows, &ScratchShape::max_sequences, &ScratchShape::longest_pages}) {
    EXPECT_GT(scratch_bytes(with(member, 8)), scratch_bytes(opt_30b()));
    EXPECT_GT(host_scratch_bytes(with(member, 8)), host_scratch_bytes(opt_30b()));
  }
}

// A row of a million positions is larger than a wave of rows may be, and still has its place.
TEST(OperationBytes, OfOneHugeRow) {
  auto shape = opt_30b();
  shape.max_rows = 1;
  shape.sparse_tokens = 1'000'000;
  EXPECT_GT(device::cuda::attention_bytes(shape).scratch, std::size_t{56} * 4 * 1'000'000);
}

}  // namespace
}  // namespace stagecoach::test
