#include <random>

#include "cuda/attention_case.hpp"
#include "support/scalar_reference.hpp"

namespace stagecoach::test {
namespace {

using device::SequenceRows;
using device::cuda::attention;
using device::cuda::attention_partials;

// f32 throughout, as on the host.
constexpr double kTolerance = 4e-6;

// Few rows a sequence: the first token, the first and the last of a page, several runs of pages, a
// sequence that brings nothing.
std::vector<BatchPiece> few_rows(const AttentionModel& model) {
  return {{0, 1},  {2 * model.page_tokens, 1}, {60, 0}, {3 * model.page_tokens - 1, 1},
          {39, 2}, {0, std::int64_t{7}},       {600, 1}};
}

TEST(CudaAttention, RowsAgreeWithScalarReference) {
  for (const auto& model : cuda_models()) {
    BatchScene scene(model, few_rows(model), 31);
    AttentionCase gpu;
    const auto host = scene.args();
    expect_attention(gpu, gpu.copy_args(model, scene.tokens(), host), reference_attention(host),
                     kTolerance, model.name());
  }
}

// Some pages are elsewhere, and their partial results come from there.
TEST(CudaAttention, PagesAndPartialResultsMerge) {
  for (const auto& model : cuda_models()) {
    for (unsigned seed = 0; seed < 2; ++seed) {
      BatchScene scene(model, {{3 * model.page_tokens, 1}, {0, 7}, {17, 3}, {520, 1}}, 41);
      AttentionCase gpu;
      auto host = scene.args();
      const auto expected = reference_attention(host);
      auto args = gpu.copy_args(model, scene.tokens(), host);
      std::mt19937 random(seed);
      for (std::size_t s = 0; s < host.sequences.size(); ++s) {
        auto& sequence = args.sequences[s];
        sequence.partials.resize(sequence.pages.size());
        for (std::size_t p = 0; p < sequence.pages.size(); ++p) {
          if (random() % 2 == 0) {
            const auto part =
                reference_attention_partial(host, host.sequences[s], static_cast<std::int64_t>(p));
            sequence.pages[p] = nullptr;
            sequence.partials[p] = gpu.put(std::vector<float>(part.begin(), part.end()));
          }
        }
      }
      expect_attention(gpu, args, expected, kTolerance, model.name());
    }
  }
}

TEST(CudaAttention, PartialResultsAgreeWithScalarReference) {
  for (const auto& model : cuda_models()) {
    BatchScene scene(model, {{3 * model.page_tokens, 1}, {5, 9}, {40, 0}, {70, 2}}, 51);
    AttentionCase gpu;
    const auto host = scene.args();
    auto args = gpu.copy_args(model, scene.tokens(), host);
    for (auto& sequence : args.sequences) {
      const auto size = static_cast<std::size_t>(
          device::attention_partial_floats(sequence.num_rows, model.heads, model.head_dim));
      for (std::size_t p = 0; p < sequence.pages.size(); ++p) {
        sequence.partials.push_back(p % 3 == 2 ? nullptr : gpu.take<float>(size));
        sequence.pages[p] = p % 3 == 1 ? nullptr : sequence.pages[p];
      }
    }
    gpu.run(attention_partials, args);
    for (std::size_t s = 0; s < host.sequences.size(); ++s) {
      for (std::size_t p = 0; p < host.sequences[s].pages.size(); ++p) {
        if (args.sequences[s].partials[p] == nullptr) {
          continue;
        }
        auto expected =
            reference_attention_partial(host, host.sequences[s], static_cast<std::int64_t>(p));
        const auto part = gpu.get(args.sequences[s].partials[p], expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
          if (p % 3 == 1 || std::isnan(expected[i])) {
            ASSERT_TRUE(std::isnan(part[i])) << model.name() << ", page " << p;
          } else {
            ASSERT_NEAR(part[i], expected[i], kTolerance * std::max(1.0, std::abs(expected[i])))
                << model.name() << ", page " << p << ", element " << i;
          }
        }
      }
    }
  }
}

// What the device computes for one page it can take for that page.
TEST(CudaAttention, TakesItsOwnPartialResults) {
  for (const auto& model : cuda_models()) {
    BatchScene scene(model, {{300, 1}, {33, 2}}, 61);
    AttentionCase gpu;
    const auto host = scene.args();
    auto args = gpu.copy_args(model, scene.tokens(), host);
    for (auto& sequence : args.sequences) {
      const auto size = static_cast<std::size_t>(
          device::attention_partial_floats(sequence.num_rows, model.heads, model.head_dim));
      for (std::size_t p = 0; p < sequence.pages.size(); ++p) {
        sequence.partials.push_back(p % 2 == 0 ? nullptr : gpu.take<float>(size));
      }
    }
    gpu.run(attention_partials, args);
    for (auto& sequence : args.sequences) {
      for (std::size_t p = 1; p < sequence.pages.size(); p += 2) {
        sequence.pages[p] = nullptr;
      }
    }
    expect_attention(gpu, args, reference_attention(host), kTolerance, model.name());
  }
}

// A row's bits do not depend on its neighbours.
TEST(CudaAttention, RowsAloneGiveTheBitsOfTheBatch) {
  const AttentionModel model{4, 2, 33, 5, KvType::f16};
  BatchScene scene(model, few_rows(model), 71);
  AttentionCase gpu;
  auto args = gpu.copy_args(model, scene.tokens(), scene.args());
  args.out = gpu.take<float>(scene.out_size());
  gpu.run(attention, args);
  auto alone = args;
  alone.out = gpu.take<float>(scene.out_size());
  for (const auto& sequence : args.sequences) {
    alone.sequences = {sequence};
    gpu.run(attention, alone);
  }
  EXPECT_TRUE(same_bits(std::span<const float>(gpu.get(args.out, scene.out_size())),
                        std::span<const float>(gpu.get(alone.out, scene.out_size()))));
}

// One head of one dimension, pages of 2, f32: queries 1, keys as given, value i at position i.
float attend_keys(const std::vector<float>& keys) {
  const AttentionModel model{1, 1, 1, 2, KvType::f32};
  const auto count = keys.size();
  AttentionCase gpu;
  Cache cache(model, static_cast<std::int64_t>(count));
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(i);
  }
  AttentionArgs args;
  args.heads = args.kv_heads = args.head_dim = args.row_stride = 1;
  args.page_tokens = 2;
  args.kv_format = KvType::f32;
  args.query = gpu.put(std::vector<float>(count, 1.0f));
  args.key = gpu.put(keys);
  args.value = gpu.put(values);
  args.sequences = {{0, static_cast<std::int32_t>(count), 0, {}}};
  for (std::size_t i = 0; i < cache.pages().size(); ++i) {
    args.sequences[0].pages.push_back(gpu.take<std::byte>(model.page_bytes()));
  }
  gpu.run(device::cuda::store_kv, args);
  args.out = gpu.take<float>(1);
  args.sequences[0].first_position = static_cast<std::int32_t>(count) - 1;
  args.sequences[0].num_rows = 1;
  gpu.run(attention, args);
  return gpu.get(args.out, 1).front();
}

TEST(CudaAttention, ExtremeScores) {
  EXPECT_NEAR(attend_keys(std::vector<float>(9, -1e30f)), 4.0f, 1e-5f);
  EXPECT_NEAR(attend_keys(std::vector<float>(9, 1e30f)), 4.0f, 1e-5f);
  EXPECT_NEAR(attend_keys({1e30f, 0, 0, 0, 0}), 0.0f, 1e-6f);
  // Minus infinity weighs nothing, also where a whole page is that.
  EXPECT_EQ(attend_keys({-kInfinity, -kInfinity, -kInfinity, -kInfinity, 0, -kInfinity}), 4.0f);
  EXPECT_EQ(attend_keys({-kInfinity, 1, -kInfinity, -kInfinity, -kInfinity, -kInfinity}), 1.0f);
  // Nothing to weigh, or no meaning: NaN, never a number that looks right.
  EXPECT_TRUE(std::isnan(attend_keys({-kInfinity, -kInfinity})));
  EXPECT_TRUE(std::isnan(attend_keys({0, kInfinity, 0, 0, 0})));
  EXPECT_TRUE(std::isnan(attend_keys({0, 1, 0, 0, kNan})));
  EXPECT_TRUE(std::isnan(attend_keys({kNan, 1, 0, 0, 0})));
  EXPECT_TRUE(std::isnan(attend_keys({kNan, -kInfinity, -kInfinity, -kInfinity, 0})));
}

TEST(CudaAttention, RefusesHeadsWithoutKernels) {
  AttentionCase gpu;
  AttentionArgs args;
  args.heads = args.kv_heads = 1;
  args.head_dim = 1025;
  args.page_tokens = 16;
  EXPECT_THROW(gpu.run(attention, args), InternalError);
}

TEST(CudaAttention, NothingToDoIsDone) {
  AttentionCase gpu;
  AttentionArgs args;
  args.heads = args.kv_heads = args.head_dim = 1;
  args.page_tokens = 16;
  for (const auto operation :
       {device::cuda::store_kv, attention, attention_partials, device::cuda::attention_scores,
        device::cuda::select_top, device::cuda::gather_values, device::cuda::scatter_values}) {
    EXPECT_NO_THROW(gpu.run(operation, args));
  }
}

}  // namespace
}  // namespace stagecoach::test
