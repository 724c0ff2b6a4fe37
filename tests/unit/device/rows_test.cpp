#include <cmath>

#include "support/scalar_reference.hpp"
#include "unit/device/device_cases.hpp"

namespace stagecoach::test {
namespace {

using device::Device;
using device::EmbedArgs;
using device::GatherRowsArgs;
using device::LayerNormArgs;

std::vector<float> norm(const TestDevice& device, LayerNormArgs args) {
  std::vector<float> out(static_cast<std::size_t>(args.rows * args.width));
  args.out = out.data();
  device.run(&Device::layer_norm, args);
  return out;
}

TEST(LayerNorm, AgreesWithScalarReference) {
  for (const auto& device : equal_devices()) {
    for (const std::int64_t width : {1, 2, 15, 16, 17, 100, 768, 1000, 4099}) {
      for (const float offset : {0.0f, 30.0f}) {
        auto x = random_floats(7 * width, 1);
        for (auto& value : x) {
          value += offset;
        }
        const auto weight = random_halves(width, 2);
        const auto bias = random_halves(width, 3);
        const LayerNormArgs args{x.data(), weight.data(), bias.data(), nullptr, 7, width, 1e-5f};
        const auto out = norm(*device, args);
        const auto expected = reference_layer_norm(args);
        for (std::size_t i = 0; i < out.size(); ++i) {
          // An offset leaves fewer bits for the differences.
          const double bound = (3e-6 + 5e-7 * offset) * (1 + std::abs(expected[i]));
          ASSERT_NEAR(out[i], expected[i], width < 3 ? 200 * bound : bound) << width << " " << i;
        }
      }
    }
  }
}

TEST(LayerNorm, ConstantRowsGiveTheBias) {
  const std::vector<float> x(40, 1234.0f);
  const auto weight = random_halves(20, 2);
  const auto bias = random_halves(20, 3);
  for (const auto& device : equal_devices()) {
    const auto out = norm(*device, {x.data(), weight.data(), bias.data(), nullptr, 2, 20, 1e-5f});
    for (std::size_t i = 0; i < 40; ++i) {
      EXPECT_NEAR(out[i], to_float(bias[i % 20]), 1e-3) << i;
    }
  }
}

TEST(LayerNorm, WorksInPlaceWithTheSameBitsForAnyNeighbours) {
  const std::int64_t width = 101;
  const auto x = random_floats(23 * width, 8, 10.0f);
  const auto weight = random_halves(width, 2);
  const auto bias = random_halves(width, 3);
  std::vector<float> first;
  for (const auto& device : equal_devices()) {
    const auto whole =
        norm(*device, {x.data(), weight.data(), bias.data(), nullptr, 23, width, 1e-5f});
    if (first.empty()) {
      first = whole;
    }
    EXPECT_TRUE(same_bits(std::span<const float>(first), std::span<const float>(whole)));
    auto in_place = x;
    for (std::int64_t row = 0; row < 23; ++row) {
      float* at = in_place.data() + row * width;
      device->run(&Device::layer_norm,
                  LayerNormArgs{at, weight.data(), bias.data(), at, 1, width, 1e-5f});
    }
    EXPECT_TRUE(same_bits(std::span<const float>(first), std::span<const float>(in_place)));
  }
}

TEST(LayerNorm, NanStaysInItsRow) {
  const std::int64_t width = 21;
  auto x = random_floats(3 * width, 8);
  x[width + 20] = NAN;
  const std::vector<Half> ones(width, to_half(1.0f));
  for (const auto& device : equal_devices()) {
    const auto out = norm(*device, {x.data(), ones.data(), ones.data(), nullptr, 3, width, 1e-5f});
    for (std::int64_t i = 0; i < 3 * width; ++i) {
      EXPECT_EQ(std::isnan(out[static_cast<std::size_t>(i)]), i / width == 1) << i;
    }
  }
}

TEST(Embed, AddsTokenAndPosition) {
  for (const auto& device : equal_devices()) {
    for (const std::int64_t width : {1, 16, 33, 512}) {
      const auto token_table = random_halves(10 * width, 1);
      const auto position_table = random_halves(7 * width, 2);
      EmbedArgs args;
      args.tokens = {9, 0, 3, 3, 9, 1};
      args.positions = {6, 0, 2, 5, 6, 1};
      args.token_table = token_table.data();
      args.position_table = position_table.data();
      args.width = width;
      std::vector<float> out(static_cast<std::size_t>(6 * width));
      args.out = out.data();
      device->run(&Device::embed, args);
      const auto expected = reference_embed(args);
      for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(out[i], static_cast<float>(expected[i])) << i;  // one exact addition
      }
    }
  }
}

TEST(Embed, RefusesUnequalLists) {
  const TestDevice device;
  EmbedArgs args;
  args.tokens = {1, 2};
  args.positions = {1};
  EXPECT_THROW(device->embed(device.stream(), args), InternalError);
}

TEST(GatherRows, CopiesRowsInTheGivenOrder) {
  const auto x = random_floats(9 * 13, 4);
  for (const auto& device : equal_devices()) {
    GatherRowsArgs args;
    args.x = x.data();
    args.rows = {8, 0, 3, 3, 7};
    args.width = 13;
    std::vector<float> out(5 * 13);
    args.out = out.data();
    device->run(&Device::gather_rows, args);
    for (std::size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(out[i], x[static_cast<std::size_t>(args.rows[i / 13]) * 13 + i % 13]);
    }
  }
}

TEST(Copies, KeepTheStreamsOrder) {
  const TestDevice device;
  auto buffer = device->allocate(4096, "a test");
  const auto first = random_floats(1024, 1);
  const auto second = random_floats(1024, 2);
  std::vector<float> back(1024);
  std::vector<float> back_again(1024);
  const auto bytes_of = [](auto& v) { return reinterpret_cast<std::byte*>(v.data()); };
  const auto const_bytes_of = [](auto& v) { return reinterpret_cast<const std::byte*>(v.data()); };
  auto& stream = device.stream();
  device->copy_from_host(stream, buffer.data(), const_bytes_of(first), 4096);
  device->copy_to_host(stream, bytes_of(back), buffer.data(), 4096);
  device->copy_from_host(stream, buffer.data(), const_bytes_of(second), 4096);
  device->copy_to_host(stream, bytes_of(back_again), buffer.data(), 4096);
  stream.record().wait();
  EXPECT_EQ(back, first);
  EXPECT_EQ(back_again, second);
}

}  // namespace
}  // namespace stagecoach::test
