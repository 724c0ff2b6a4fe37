// Embedding, LayerNorm, gathering and widening of rows.
#include <cmath>

#include "cuda/cuda_case.hpp"
#include "cuda/packed_matrix.hpp"
#include "support/scalar_reference.hpp"

namespace stagecoach::test {
namespace {

using device::Device;
using device::EmbedArgs;
using device::GatherRowsArgs;
using device::LayerNormArgs;
using device::Weights;
using device::WidenArgs;

const std::vector<std::int64_t> kWidths = {1, 7, 64, 80, 200, 768, 1000, 4096};
constexpr float kUntouched = -12345.0f;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// On the device, with every matrix `shift` elements past where memory was taken.
std::vector<float> norm(CudaCase& cuda, const LayerNormArgs& host, std::int64_t shift,
                        bool in_place) {
  const auto shifted = [&](const auto* data, std::int64_t count) {
    std::vector<std::decay_t<decltype(*data)>> items(at(shift + count));
    std::copy_n(data, count, items.begin() + shift);
    return cuda.put(items) + shift;
  };
  auto args = host;
  const auto size = host.rows * host.width;
  auto* const x = shifted(host.x, size);
  auto* const end = cuda.put(std::vector<float>(at(shift + size + 1), kUntouched)) + shift;
  args.x = x;
  args.weight = shifted(host.weight, host.width);
  args.bias = shifted(host.bias, host.width);
  args.out = in_place ? x : end;
  cuda.run(&Device::layer_norm, args);
  EXPECT_EQ(cuda.get(end + size, 1)[0], kUntouched);
  return cuda.get(args.out, at(size));
}

TEST(CudaLayerNorm, AgreesWithScalarReferenceAndHost) {
  CudaCase cuda;
  const TestDevice host;
  auto widths = kWidths;
  widths.insert(widths.end(), {1028, 13000, 13001});
  for (const auto width : widths) {
    for (const std::int64_t rows : {1, 5}) {
      for (const float offset : {0.0f, 30.0f}) {
        auto x = random_floats(rows * width, 1);
        for (auto& value : x) {
          value += offset;
        }
        const auto weight = random_halves(width, 2);
        const auto bias = random_halves(width, 3);
        LayerNormArgs args{x.data(), weight.data(), bias.data(), nullptr, rows, width, 1e-5f};
        const auto expected = reference_layer_norm(args);
        const auto first = norm(cuda, args, 0, false);
        for (const bool in_place : {false, true}) {
          for (const std::int64_t shift : {0, 1}) {
            const auto out = norm(cuda, args, shift, in_place);
            for (std::size_t i = 0; i < out.size(); ++i) {
              // An offset leaves fewer bits for the differences.
              const double bound = (3e-6 + 5e-7 * offset) * (1 + std::abs(expected[i]));
              ASSERT_NEAR(out[i], expected[i], width < 3 ? 200 * bound : bound)
                  << width << " " << i;
            }
            if (shift == 0) {
              EXPECT_EQ(out, first);
            }
          }
        }
        std::vector<float> of_host(first.size());
        args.out = of_host.data();
        host.run(&Device::layer_norm, args);
        for (std::size_t i = 0; i < first.size(); ++i) {
          const double bound = (6e-6 + 1e-6 * offset) * (1 + std::abs(expected[i]));
          ASSERT_NEAR(first[i], of_host[i], width < 3 ? 200 * bound : bound) << width << " " << i;
        }
      }
    }
  }
}

TEST(CudaLayerNorm, ManyRowsAndNone) {
  CudaCase cuda;
  const auto x = random_floats(33 * 80, 4, 10.0f);
  const auto weight = random_halves(80, 2);
  const auto bias = random_halves(80, 3);
  LayerNormArgs args{x.data(), weight.data(), bias.data(), nullptr, 33, 80, 1e-5f};
  const auto expected = reference_layer_norm(args);
  const auto out = norm(cuda, args, 0, false);
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_NEAR(out[i], expected[i], 5e-6 * (1 + std::abs(expected[i]))) << i;
  }
  args.rows = 0;
  EXPECT_TRUE(norm(cuda, args, 0, false).empty());
}

TEST(CudaLayerNorm, NanStaysInItsRow) {
  CudaCase cuda;
  for (const std::int64_t width : {21, 1032}) {
    auto x = random_floats(3 * width, 8);
    x[at(width + 20)] = NAN;
    const std::vector<Half> ones(at(width), to_half(1.0f));
    const auto out =
        norm(cuda, {x.data(), ones.data(), ones.data(), nullptr, 3, width, 1e-5f}, 0, false);
    for (std::int64_t i = 0; i < 3 * width; ++i) {
      ASSERT_EQ(std::isnan(out[at(i)]), i / width == 1) << i;
    }
  }
}

struct Tokens {
  std::vector<std::int32_t> tokens{9, 0, 3, 3, 9, 1};
  std::vector<std::int32_t> positions{6, 0, 2, 5, 6, 1};
};

/// The host's arguments with everything in the device's memory.
void expect_embedded(CudaCase& cuda, EmbedArgs args, const Weights& table_on_device,
                     const std::string& what) {
  const auto expected = reference_embed(args);
  args.token_table = table_on_device;
  args.position_table =
      cuda.put(std::vector<Half>(args.position_table, args.position_table + 7 * args.width));
  args.out = cuda.put(std::vector<float>(expected.size() + 1, kUntouched));
  cuda.run(&Device::embed, args);
  const auto out = cuda.get(args.out, expected.size() + 1);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(out[i], static_cast<float>(expected[i])) << what << ", " << i;  // one exact addition
  }
  EXPECT_EQ(out.back(), kUntouched);
}

TEST(CudaEmbed, AddsTokenAndPosition) {
  CudaCase cuda;
  for (const auto width : kWidths) {
    const auto table = random_halves(10 * width, 1);
    const auto positions = random_halves(7 * width, 2);
    EmbedArgs args{.tokens = Tokens().tokens,
                   .positions = Tokens().positions,
                   .token_table = table.data(),
                   .position_table = positions.data(),
                   .width = width};
    expect_embedded(cuda, args, cuda.put(table), fmt::format("f16, {}", width));
    args.tokens.clear();
    args.positions.clear();
    expect_embedded(cuda, args, cuda.put(table), "none");
  }
}

TEST(CudaEmbed, ReadsPackedTables) {
  CudaCase cuda;
  for (const auto& format : pack_formats()) {
    for (const auto width : kWidths) {
      for (const std::size_t shift : {0u, 1u}) {
        const PackedMatrix table(format, 10, width, 1, shift);
        const auto positions = random_halves(7 * width, 2);
        const EmbedArgs args{.tokens = Tokens().tokens,
                             .positions = Tokens().positions,
                             .token_table = table.weights(),
                             .position_table = positions.data(),
                             .width = width};
        expect_embedded(cuda, args, {cuda.put(table.bytes) + shift, format}, table.what());
      }
    }
  }
}

TEST(CudaGatherRows, CopiesRowsInTheGivenOrder) {
  CudaCase cuda;
  for (const auto width : kWidths) {
    const auto x = random_floats(9 * width, 4);
    GatherRowsArgs args{.x = cuda.put(x), .rows = {8, 0, 3, 3, 7}, .width = width};
    args.out = cuda.put(std::vector<float>(at(5 * width + 1), kUntouched));
    cuda.run(&Device::gather_rows, args);
    const auto out = cuda.get(args.out, at(5 * width + 1));
    for (std::size_t i = 0; i < at(5 * width); ++i) {
      ASSERT_EQ(out[i], x[at(args.rows[i / at(width)]) * at(width) + i % at(width)]) << width;
    }
    EXPECT_EQ(out.back(), kUntouched);
  }
  cuda.run(&Device::gather_rows, GatherRowsArgs{.width = 5});
}

void expect_widened(CudaCase& cuda, const PackedMatrix& matrix, std::int64_t out_shift) {
  constexpr Half kGuard{0x1234};
  const auto size = at(matrix.rows * matrix.columns);
  Half* const out = cuda.put(std::vector<Half>(size + at(out_shift) + 1, kGuard));
  cuda.run(&Device::widen, WidenArgs{{cuda.put(matrix.bytes) + matrix.first, matrix.format},
                                     out + out_shift,
                                     matrix.rows,
                                     matrix.columns});
  auto all = cuda.get(out, size + at(out_shift) + 1);
  EXPECT_EQ(all.back(), kGuard) << matrix.what();
  const auto widened = std::span<const Half>(all).subspan(at(out_shift), size);
  ASSERT_TRUE(same_bits(widened, std::span<const Half>(matrix.meaning))) << matrix.what();
}

TEST(CudaWiden, GivesTheHostsBits) {
  CudaCase cuda;
  auto widths = kWidths;
  widths.insert(widths.end(), {16, 24, 31, 33, 40, 129});
  for (const auto& format : pack_formats()) {
    for (const auto columns : widths) {
      for (const std::int64_t rows : {0, 1, 9}) {
        expect_widened(cuda, PackedMatrix(format, rows, columns, 3), 0);
        expect_widened(cuda, PackedMatrix(format, rows, columns, 4), 1);
        expect_widened(cuda, PackedMatrix(format, rows, columns, 5, 1), 0);
      }
    }
  }
}

// Groups of denormals, of the largest numbers, of a large minimum with a small scale (where a
// second rounding would show), and with numbers that are not finite.
TEST(CudaWiden, ExtremeGroups) {
  CudaCase cuda;
  std::mt19937 generator(7);
  for (const auto& format : pack_formats()) {
    std::vector<Half> values;
    for (int group = 0; group < 40; ++group) {
      for (std::int64_t i = 0; i < format.group; ++i) {
        const auto random = generator();
        const auto small = static_cast<std::uint16_t>(random % 64);
        switch (group % 5) {
          case 0:
            values.push_back({small});  // denormals
            break;
          case 1:
            values.push_back({static_cast<std::uint16_t>(0x7bff - small + (random & 0x8000u))});
            break;
          case 2:
            values.push_back(to_half(1000.0f + static_cast<float>(small) / 2));
            break;
          case 3:
            values.push_back({static_cast<std::uint16_t>(random)});  // any bits
            break;
          default:
            values.push_back(i == 5 ? Half{0x7c00} : to_half(static_cast<float>(small)));
        }
      }
    }
    const PackedMatrix matrix(format, 1, static_cast<std::int64_t>(values.size()), values);
    expect_widened(cuda, matrix, 0);
  }
}

}  // namespace
}  // namespace stagecoach::test
