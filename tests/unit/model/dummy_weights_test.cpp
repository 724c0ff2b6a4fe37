#include "model/dummy_weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error.hpp"

namespace stagecoach::model {
namespace {

const TensorSpec kMatrix{"q.weight", {512, 512}};

std::vector<Half> fill(std::uint64_t seed, const std::string& group, const TensorSpec& tensor,
                       std::int64_t first, std::size_t count) {
  std::vector<Half> out(count);
  fill_dummy(seed, group, tensor, first, out);
  return out;
}

std::vector<std::uint16_t> bits(const std::vector<Half>& values) {
  std::vector<std::uint16_t> out;
  for (const auto value : values) {
    out.push_back(value.bits);
  }
  return out;
}

// The expected numbers were computed with numpy and the xxHash library from docs/formats.md.
TEST(DummyWeights, AreTheDocumentedNumbers) {
  EXPECT_THAT(bits(fill(1, "layers/003", kMatrix, 0, 10)),
              ::testing::ElementsAre(0x252b, 0xa54a, 0x1aba, 0x1d9d, 0x1880, 0x25a5, 0xa6a9, 0xa626,
                                     0xa0fa, 0xa646));
  EXPECT_THAT(bits(fill(1, "layers/003", kMatrix, 262139, 5)),
              ::testing::ElementsAre(0x1cfd, 0x2271, 0x2644, 0xa7bf, 0x257f));
  EXPECT_THAT(bits(fill(~std::uint64_t{0}, "embedding", {"token.weight", {4, 8}}, 7, 6)),
              ::testing::ElementsAre(0x27b4, 0x226c, 0x0f65, 0x1a37, 0xa862, 0x253f));
  EXPECT_THAT(bits(fill(42, "layers/011", {"up.bias", {7}}, 1, 6)),
              ::testing::ElementsAre(0x9ebf, 0xa10c, 0x9dbc, 0x96fa, 0x2105, 0x96b5));
}

TEST(DummyWeights, AnySplitGivesTheSameBytes) {
  const auto whole = fill(9, "layers/000", kMatrix, 0, 1000);
  for (const std::size_t piece : {1u, 3u, 4u, 7u, 250u, 999u}) {
    std::vector<Half> joined;
    for (std::size_t at = 0; at < whole.size(); at += piece) {
      const auto part = fill(9, "layers/000", kMatrix, static_cast<std::int64_t>(at),
                             std::min(piece, whole.size() - at));
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, whole) << "pieces of " << piece;
  }
}

TEST(DummyWeights, LargeFillsGiveTheSameBytes) {
  const auto whole = fill(1, "layers/003", kMatrix, 0, 512 * 512);
  std::vector<Half> joined;
  for (std::int64_t row = 0; row < 512; ++row) {
    const auto part = fill(1, "layers/003", kMatrix, row * 512, 512);
    joined.insert(joined.end(), part.begin(), part.end());
  }
  EXPECT_TRUE(joined == whole);
}

TEST(DummyWeights, SeedGroupAndNameChangeThem) {
  const auto base = fill(1, "layers/000", kMatrix, 0, 64);
  EXPECT_NE(fill(2, "layers/000", kMatrix, 0, 64), base);
  EXPECT_NE(fill(1, "layers/001", kMatrix, 0, 64), base);
  EXPECT_NE(fill(1, "layers/000", {"k.weight", {512, 512}}, 0, 64), base);
  EXPECT_EQ(fill(1, "layers/000", {"q.weight", {256, 1024}}, 0, 64), base);
}

TEST(DummyWeights, HaveTheMomentsOfAnUntrainedModel) {
  const auto values = fill(3, "layers/000", kMatrix, 0, 512 * 512);
  double sum = 0;
  double squares = 0;
  double largest = 0;
  for (const auto value : values) {
    const double number = to_float(value);
    sum += number;
    squares += number * number;
    largest = std::max(largest, std::fabs(number));
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0, 2e-4);
  EXPECT_NEAR(std::sqrt(squares / count), 0.0202, 2e-4);
  EXPECT_LE(largest, 0.03501);
  EXPECT_GT(largest, 0.0349);
}

TEST(DummyWeights, NormsStartAsIdentities) {
  for (const auto value : fill(5, "head", {"final_norm.weight", {100}}, 0, 100)) {
    EXPECT_EQ(value.bits, 0x3c00);
  }
  for (const auto value : fill(5, "layers/001", {"mlp_norm.bias", {100}}, 0, 100)) {
    EXPECT_LE(std::fabs(to_float(value)), 0.01f);
  }
}

TEST(DummyWeights, ElementsOutsideTheTensorAreABug) {
  std::vector<Half> out(2);
  EXPECT_THROW(fill_dummy(1, "head", {"final_norm.bias", {4}}, 3, out), InternalError);
  EXPECT_THROW(fill_dummy(1, "head", {"final_norm.bias", {4}}, -1, out), InternalError);
}

}  // namespace
}  // namespace stagecoach::model
