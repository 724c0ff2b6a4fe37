#include "offload/layer_image.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"

namespace stagecoach::offload {
namespace {

LayerImage opt_layer(std::int64_t hidden, const PackFormat& format = {}) {
  model::ModelSpec spec;
  spec.hidden = hidden;
  spec.heads = spec.kv_heads = 4;
  spec.head_dim = hidden / 4;
  spec.ffn = 4 * hidden;
  return LayerImage(model::layer_tensors(spec, {format, false}));
}

constexpr std::int64_t kWidths[] = {64, 256, 768, 2048, 12288};

double row_bytes(const model::TensorSpec& tensor) {
  return static_cast<double>(tensor.shape.size() > 1 ? tensor.size_bytes() / tensor.shape.front()
                                                     : tensor.size_bytes());
}

/// Tensor bytes that a cut gives to each tier; the page that lies in two counts for the device.
struct Placed {
  double device, cpu, disk;
};

Placed placed(const LayerImage& image, const WeightCut& cut) {
  const auto device = image.tensor_bytes_before(cut.device_end);
  const auto cpu = std::max(device, image.tensor_bytes_before(cut.cpu_end)) - device;
  return {static_cast<double>(device), static_cast<double>(cpu),
          static_cast<double>(image.tensor_bytes() - device - cpu)};
}

/// Every pair of whole percentages, in steps.
template <typename Check>
void for_all_shares(int step, Check check) {
  for (int device = 0; device <= 100; device += step) {
    for (int cpu = 0; device + cpu <= 100; cpu += step) {
      SCOPED_TRACE("device " + std::to_string(device) + " cpu " + std::to_string(cpu));
      check(TierShares{device / 100.0, cpu / 100.0});
    }
  }
}

void expect_within_one_percent(const LayerImage& image, const TierShares& shares) {
  const auto total = static_cast<double>(image.tensor_bytes());
  const auto parts = placed(image, cut_by_shares(image, shares));
  ASSERT_NEAR(parts.device / total, shares.device, 0.01);
  ASSERT_NEAR(parts.cpu / total, shares.cpu, 0.01);
  ASSERT_NEAR(parts.disk / total, shares.disk(), 0.01);
}

TEST(LayerImage, TensorsFollowEachOtherFromPageToPage) {
  const auto image = opt_layer(64);
  std::size_t expected = 0;
  std::size_t bytes = 0;
  for (const auto& part : image.parts()) {
    EXPECT_EQ(part.offset_bytes, expected) << part.tensor.name;
    expected += round_up(static_cast<std::size_t>(part.tensor.size_bytes()), 4096);
    bytes += static_cast<std::size_t>(part.tensor.size_bytes());
  }
  EXPECT_EQ(image.size_bytes(), expected);
  EXPECT_EQ(image.tensor_bytes(), bytes);
  EXPECT_EQ(image.parts().size(), 16u);
}

TEST(LayerImage, FindsTensorsByName) {
  const auto image = opt_layer(64);
  EXPECT_EQ(image.part("attn_norm.bias").offset_bytes, 4096u);
  EXPECT_EQ(image.part("q.weight").offset_bytes, 8192u);
  EXPECT_THROW(static_cast<void>(image.part("gate.weight")), InternalError);
}

TEST(LayerImage, PaddingIsNoTensorByte) {
  const auto image = opt_layer(64);  // vectors of 128 bytes, then q.weight of 8192
  EXPECT_EQ(image.tensor_bytes_before(0), 0u);
  EXPECT_EQ(image.tensor_bytes_before(100), 100u);
  EXPECT_EQ(image.tensor_bytes_before(4096), 128u);
  EXPECT_EQ(image.tensor_bytes_before(4097), 129u);
  EXPECT_EQ(image.tensor_bytes_before(8192 + 10), 256u + 10);
  EXPECT_EQ(image.tensor_bytes_before(image.size_bytes()), image.tensor_bytes());
}

TEST(WeightCut, AllOnOneTierLeavesNothingToTheOthers) {
  for (const auto hidden : kWidths) {
    const auto image = opt_layer(hidden);
    const auto end = image.size_bytes();
    const auto device = cut_by_shares(image, {1, 0});
    EXPECT_EQ(device.device_end, end);
    EXPECT_EQ(device.stream_begin, end);
    const auto cpu = cut_by_shares(image, {0, 1});
    EXPECT_EQ(cpu.device_end, 0u);
    EXPECT_EQ(cpu.cpu_end, end);
    const auto disk = cut_by_shares(image, {0, 0});
    EXPECT_EQ(disk.device_end, 0u);
    EXPECT_EQ(disk.cpu_end, 0u);
  }
}

TEST(WeightCut, EveryShareIsMetWithinOnePercentOfTheLayer) {
  for (const auto hidden : {256, 768, 2048, 12288}) {
    SCOPED_TRACE(hidden);
    const auto image = opt_layer(hidden);
    for_all_shares(1, [&](const TierShares& shares) { expect_within_one_percent(image, shares); });
  }
}

TEST(WeightCut, RandomSharesAreMetWithinOnePercentOfTheLayer) {
  constexpr unsigned kSeed = 11;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  std::uniform_real_distribution<double> uniform(0, 1);
  const auto image = opt_layer(768);
  for (int i = 0; i < 2000; ++i) {
    const auto device = uniform(random);
    expect_within_one_percent(image, {device, (1 - device) * uniform(random)});
  }
}

TEST(WeightCut, IsOffByHalfARowOrHalfAPageAtMost) {
  for (const auto hidden : kWidths) {
    SCOPED_TRACE(hidden);
    const auto image = opt_layer(hidden);
    const auto total = static_cast<double>(image.tensor_bytes());
    double longest_row = 0;
    for (const auto& part : image.parts()) {
      longest_row = std::max(longest_row, row_bytes(part.tensor));
    }
    for_all_shares(5, [&](const TierShares& shares) {
      const auto parts = placed(image, cut_by_shares(image, shares));
      ASSERT_LE(std::abs(parts.device - shares.device * total), longest_row / 2 + 1);
      ASSERT_LE(std::abs(parts.disk - shares.disk() * total),
                std::max(longest_row, double{kPageBytes}) / 2 + 1);
    });
  }
}

TEST(WeightCut, TwentyPercentAreTwentyAndNotEight) {
  const auto image = opt_layer(12288);
  const auto parts = placed(image, cut_by_shares(image, {0.2, 0.8}));
  EXPECT_NEAR(parts.device / static_cast<double>(image.tensor_bytes()), 0.2, 0.0001);
}

TEST(WeightCut, OnePercentMoreAddsOnePercentAndARow) {
  for (const auto hidden : kWidths) {
    const auto image = opt_layer(hidden);
    const auto total = static_cast<double>(image.tensor_bytes());
    const auto row = 2.0 * 4 * static_cast<double>(hidden);  // of `down`, the longest
    double last = 0;
    for (int percent = 1; percent <= 100; ++percent) {
      const auto device = placed(image, cut_by_shares(image, {percent / 100.0, 0})).device;
      EXPECT_GE(device, last) << hidden << ": " << percent;
      EXPECT_LE(device - last, 0.01 * total + row + 1) << hidden << ": " << percent;
      last = device;
    }
    EXPECT_EQ(last, total);
  }
}

TEST(WeightCut, TheFirstCutIsBetweenRows) {
  for (const auto hidden : kWidths) {
    const auto image = opt_layer(hidden);
    for_all_shares(7, [&](const TierShares& shares) {
      const auto end = cut_by_shares(image, shares).device_end;
      for (const auto& part : image.parts()) {
        if (part.offset_bytes < end) {
          const auto inside = static_cast<double>(end - part.offset_bytes);
          const bool whole = inside >= static_cast<double>(part.tensor.size_bytes());
          ASSERT_TRUE(whole || std::fmod(inside, row_bytes(part.tensor)) == 0)
              << part.tensor.name << " is cut after " << inside;
        }
      }
    });
  }
}

TEST(WeightCut, PackedImagesAreCutBetweenRowsToo) {
  for (const auto packing : {Packing::int4, Packing::int8}) {
    for (const std::int64_t hidden : {64, 768}) {
      const auto image = opt_layer(hidden, {packing, 64});
      // By hand: groups of 64 in rows of `in` numbers, `in` a multiple of 256.
      const auto row_of = [&](std::int64_t in) {
        const auto params = std::max<std::int64_t>(16, in / 64 * 4);
        return static_cast<double>(params + in / (packing == Packing::int4 ? 2 : 1));
      };
      for_all_shares(3, [&](const TierShares& shares) {
        const auto cut = cut_by_shares(image, shares);
        for (const std::string name : {"q", "k", "v", "o", "up", "down"}) {
          const auto begin = image.part(name + ".weight").offset_bytes;
          const auto end = image.part(name + ".bias").offset_bytes;
          if (cut.device_end > begin && cut.device_end < end) {
            ASSERT_EQ(std::fmod(static_cast<double>(cut.device_end - begin),
                                row_of(name == "down" ? 4 * hidden : hidden)),
                      0)
                << name;
          }
        }
        const auto total = static_cast<double>(image.tensor_bytes());
        ASSERT_LE(std::abs(placed(image, cut).device - shares.device * total),
                  row_of(4 * hidden) / 2 + 1);
      });
    }
  }
}

TEST(WeightCut, WhatIsStreamedBeginsAndEndsAtPages) {
  for (const auto hidden : kWidths) {
    const auto image = opt_layer(hidden);
    for_all_shares(7, [&](const TierShares& shares) {
      const auto cut = cut_by_shares(image, shares);
      ASSERT_EQ(cut.stream_begin % kPageBytes, 0u);
      ASSERT_EQ(cut.cpu_end % kPageBytes, 0u);
      ASSERT_LE(cut.stream_begin, cut.device_end);
      ASSERT_LT(cut.device_end - cut.stream_begin, kPageBytes);
      ASSERT_LE(cut.stream_begin, cut.cpu_end);
      ASSERT_LE(cut.cpu_end, image.size_bytes());
    });
  }
}

TEST(WeightCut, ATierWithoutAShareGetsNoByte) {
  for (const auto hidden : kWidths) {
    const auto image = opt_layer(hidden);
    for (int percent = 0; percent <= 100; ++percent) {
      const auto device = percent / 100.0;
      EXPECT_EQ(cut_by_shares(image, {device, 1 - device}).cpu_end, image.size_bytes());
      const auto without_cpu = cut_by_shares(image, {device, 0});
      EXPECT_TRUE(percent == 100 || without_cpu.cpu_end == without_cpu.stream_begin) << percent;
      EXPECT_EQ(cut_by_shares(image, {0, device}).device_end, 0u);
    }
  }
}

}  // namespace
}  // namespace stagecoach::offload
