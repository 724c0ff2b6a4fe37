#include "cuda/attention_case.hpp"
#include "device/cuda/attention_work.hpp"
#include "support/scalar_reference.hpp"

namespace stagecoach::test {
namespace {

// Numbers are about 1 and weights sum to 1. Queries and weights (and keys and values of other
// formats) are rounded to 11 bits, to within 2^-12 of themselves: scores to a few 2^-12, so weights
// to about 2^-10 of themselves, times values of up to 4.
constexpr double kTolerance = 4e-3;

// Pieces that begin and end at pages' ends and in their middles, a prompt of few rows, one decoded
// token beside them.
std::vector<BatchPiece> pieces(const AttentionModel& model) {
  return {{0, 36}, {2 * model.page_tokens, 16}, {39, 8}, {70, 1}, {5, 0}, {29, 67}, {0, 3}};
}

TEST(CudaAttentionTiles, AgreeWithScalarReference) {
  for (const auto& model : cuda_models()) {
    BatchScene scene(model, pieces(model), 131);
    AttentionCase gpu;
    const auto host = scene.args();
    expect_attention(gpu, gpu.copy_args(model, scene.tokens(), host), reference_attention(host),
                     kTolerance, model.name());
  }
}

// Which sequences go where: the comparison above would not notice.
TEST(CudaAttentionTiles, AreForManyRowsWithAllTheirPages) {
  const AttentionModel model;
  BatchScene scene(model, {{0, 8}, {0, 7}, {40, 0}, {20, 9}}, 5);
  auto args = scene.args();
  const auto tables = device::cuda::make_tables(args);
  ASSERT_EQ(tables.sequences.size(), 3U);
  EXPECT_TRUE(goes_to_tiles(args, tables, 0));
  EXPECT_FALSE(goes_to_tiles(args, tables, 1));
  EXPECT_TRUE(goes_to_tiles(args, tables, 2));
  args.sequences[3].pages[1] = nullptr;
  EXPECT_FALSE(goes_to_tiles(args, tables, 2));
  args.sequences[0].sparse = true;
  EXPECT_FALSE(goes_to_tiles(args, tables, 0));
}

// A page beyond the last row, and its place, do not matter.
TEST(CudaAttentionTiles, PagesThatNoRowSeesNeedNotBeHere) {
  const AttentionModel model{2, 1, 40, 16, KvType::f16};
  BatchScene scene(model, {{0, 32}}, 7);
  AttentionCase gpu;
  auto host = scene.args();
  const auto expected = reference_attention(host);
  host.sequences[0].pages.push_back(nullptr);
  const auto args = gpu.copy_args(model, scene.tokens(), host);
  EXPECT_TRUE(goes_to_tiles(args, device::cuda::make_tables(args), 0));
  expect_attention(gpu, args, expected, kTolerance, model.name());
}

// Scores that differ by thousands: the weights of all but the nearest are nothing.
TEST(CudaAttentionTiles, LargeAndSmallNumbers) {
  for (const float spread : {1e-3f, 30.0f}) {
    const AttentionModel model{2, 2, 64, 16, KvType::f16};
    BatchScene scene(model, {{0, 40}, {50, 20}}, 17, spread);
    AttentionCase gpu;
    auto host = scene.args();
    // Queries that are f16 numbers, and so exact products.
    for (auto& value : scene.tokens().data) {
      value = to_float(to_half(value));
    }
    TestDevice().run(&device::Device::store_kv, host);
    expect_attention(gpu, gpu.copy_args(model, scene.tokens(), host), reference_attention(host),
                     2e-3 * std::max(1.0f, 4 * spread), fmt::format("spread {}", spread));
  }
}

// Finite numbers beyond f16 count as its largest.
TEST(CudaAttentionTiles, NumbersBeyondHalfPrecisionAreCut) {
  const AttentionModel model{1, 1, 16, 16, KvType::f32};
  BatchScene scene(model, {{0, 24}}, 19);
  auto host = scene.args();
  host.scale = 1e-5f;
  auto& data = scene.tokens().data;
  const auto fill = [&](float large) {
    for (std::int64_t row = 0; row < 25; ++row) {
      float* const from = data.data() + row * scene.tokens().stride;
      from[3] = row % 2 == 0 ? large : -large;  // query
      from[scene.tokens().key_at + 3] = 0.5f;
      from[scene.tokens().value_at + 5] = row == 4 ? large : 1.0f;
    }
    TestDevice().run(&device::Device::store_kv, host);
  };
  fill(65504.0f);
  const auto expected = reference_attention(host);
  fill(1e9f);
  AttentionCase gpu;
  expect_attention(gpu, gpu.copy_args(model, scene.tokens(), host), expected, 40.0, "cut");
}

TEST(CudaAttentionTiles, WhatIsNotFiniteShows) {
  for (const bool in_value : {false, true}) {
    const AttentionModel model{1, 1, 16, 16, KvType::f32};
    BatchScene scene(model, {{0, 40}}, 23);
    auto host = scene.args();
    auto& tokens = scene.tokens();
    const auto at = in_value ? tokens.value_at : tokens.key_at;
    tokens.data[static_cast<std::size_t>(34 * tokens.stride + at + 2)] = kNan;  // position 33
    TestDevice().run(&device::Device::store_kv, host);
    AttentionCase gpu;
    auto args = gpu.copy_args(model, tokens, host);
    args.out = gpu.take<float>(scene.out_size());
    gpu.run(device::cuda::attention, args);
    const auto out = gpu.get(args.out, scene.out_size());
    for (std::size_t row = 0; row < 40; ++row) {
      for (std::size_t i = 0; i < 16; ++i) {
        const bool nan = std::isnan(out[(row + 1) * 16 + i]);
        if (row >= 33) {
          EXPECT_EQ(nan, !in_value || i == 2) << row << " " << i;
        } else if (!in_value || i != 2) {
          EXPECT_FALSE(nan) << row << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach::test
