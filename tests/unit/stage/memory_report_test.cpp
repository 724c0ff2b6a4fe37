#include "stage/memory_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "stage/partition.hpp"
#include "unit/stage/specs.hpp"

namespace stagecoach::stage {
namespace {

using ::testing::HasSubstr;

StageShape shape(int stages, int stage) {
  return {.spec = testing::small_spec(4),
          .contents = partition_layers(4, stages, {})[static_cast<std::size_t>(stage)],
          .batch = {.gpu_batch_size = 4, .prefill_piece = 28}};
}

std::size_t line(const MemoryReport& report, const std::string& what) {
  for (const auto& entry : report.lines) {
    if (entry.what == what) {
      return entry.size_bytes;
    }
  }
  ADD_FAILURE() << "no line " << what;
  return 0;
}

TEST(MemoryReport, LinesAreWhatTheModelTakes) {
  const auto report =
      plan_memory(shape(2, 0), {.longest_pages = 3, .wanted_pages = 10}, 1u << 30, 1000, 2000);
  // A page: K and V, 16 tokens, 64 numbers of two bytes; two layers; ten pages a layer.
  EXPECT_EQ(line(report, "KV cache"), 10u * 2 * (2 * 16 * 64 * 2));
  // Three buffers of 32 rows of 64 floats.
  EXPECT_EQ(line(report, "hidden states"), 3u * 32 * 64 * 4);
  // Norm 64, QKV 192, attention 64, MLP 256 floats a row.
  EXPECT_EQ(line(report, "workspace"), 32u * (64 + 192 + 64 + 256) * 4);
  EXPECT_EQ(line(report, "device scratch"), 1000u);
  EXPECT_EQ(report.kv_pages_per_layer, 10);
  std::size_t sum = 0;
  for (const auto& entry : report.lines) {
    sum += entry.size_bytes;
  }
  EXPECT_EQ(report.total_bytes(), sum);
}

TEST(MemoryReport, TakesTheKvPagesThatFit) {
  const KvDemand demand{.longest_pages = 3, .wanted_pages = 1000};
  const auto page_row = 2 * kv_page_bytes(shape(2, 0));
  const auto least = plan_memory_with_pages(shape(2, 0), 3, 0, 0, 0).total_bytes();
  EXPECT_EQ(plan_memory(shape(2, 0), demand, least, 0, 0).kv_pages_per_layer, 3);
  EXPECT_EQ(plan_memory(shape(2, 0), demand, least + page_row - 1, 0, 0).kv_pages_per_layer, 3);
  EXPECT_EQ(plan_memory(shape(2, 0), demand, least + 7 * page_row, 0, 0).kv_pages_per_layer, 10);
}

TEST(MemoryReport, RefusesWithTheNumbers) {
  const KvDemand demand{.longest_pages = 3, .wanted_pages = 3};
  const auto least = plan_memory_with_pages(shape(1, 0), 3, 0, 0, 0).total_bytes();
  try {
    plan_memory(shape(1, 0), demand, least - 1, 0, 0);
    FAIL() << "accepted";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), HasSubstr("does not fit"));
    EXPECT_THAT(error.what(), HasSubstr("--device-mem"));
    EXPECT_THAT(error.what(), HasSubstr("weights"));
  }
}

TEST(MemoryReport, TheTiedHeadCostsTheLastStageTheTokenTable) {
  const auto first = plan_memory_with_pages(shape(2, 0), 1, 0, 0, 0);
  const auto last = plan_memory_with_pages(shape(2, 1), 1, 0, 0, 0);
  // 128 x 64 and 514 x 64 halfs on the first; 128 x 64 and two vectors of 64 on the last.
  EXPECT_EQ(line(first, "weights") - line(last, "weights"),
            (514u * 64 * 2 + 4095) / 4096 * 4096 - 2 * 4096);
}

}  // namespace
}  // namespace stagecoach::stage
