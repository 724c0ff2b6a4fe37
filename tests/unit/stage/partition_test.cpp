#include "stage/partition.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace stagecoach::stage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int64_t> counts(const std::vector<offload::StageContents>& parts) {
  std::vector<std::int64_t> result;
  for (const auto& part : parts) {
    result.push_back(part.layers);
  }
  return result;
}

std::string refusal(std::int64_t layers, int stages, const std::vector<std::int64_t>& given) {
  try {
    partition_layers(layers, stages, given);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Partition, SplitsEvenlyAndGivesTheRestToEarlierStages) {
  EXPECT_THAT(counts(partition_layers(8, 2, {})), ElementsAre(4, 4));
  EXPECT_THAT(counts(partition_layers(8, 3, {})), ElementsAre(3, 3, 2));
  EXPECT_THAT(counts(partition_layers(7, 4, {})), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(counts(partition_layers(5, 5, {})), ElementsAre(1, 1, 1, 1, 1));
}

TEST(Partition, RunsAreContiguousAndEndsHaveEmbeddingAndHead) {
  for (int stages = 1; stages <= 8; ++stages) {
    const auto parts = partition_layers(8, stages, {});
    std::int64_t next = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(parts[i].first_layer, next);
      EXPECT_EQ(parts[i].embedding, i == 0);
      EXPECT_EQ(parts[i].head, i + 1 == parts.size());
      next += parts[i].layers;
    }
    EXPECT_EQ(next, 8);
  }
}

TEST(Partition, TakesAnUnevenSplit) {
  const auto parts = partition_layers(8, 3, {1, 5, 2});
  EXPECT_THAT(counts(parts), ElementsAre(1, 5, 2));
  EXPECT_EQ(parts[2].first_layer, 6);
}

TEST(Partition, RefusesWhatDoesNotAddUp) {
  EXPECT_THAT(refusal(8, 9, {}), HasSubstr("use 1 to 8 stages"));
  EXPECT_THAT(refusal(8, 2, {3, 3, 2}), HasSubstr("3 numbers for 2 stages"));
  EXPECT_THAT(refusal(8, 2, {3, 4}), HasSubstr("7 layers in all, but the model has 8"));
  EXPECT_THAT(refusal(8, 2, {8, 0}), HasSubstr("every stage needs 1 to 8 layers"));
  EXPECT_THAT(refusal(8, 2, {9, -1}), HasSubstr("every stage needs 1 to 8 layers"));
}

}  // namespace
}  // namespace stagecoach::stage
