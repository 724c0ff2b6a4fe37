// Packed weights: products, widening and the token table.
#include <algorithm>
#include <cmath>

#include "base/packing.hpp"
#include "support/scalar_reference.hpp"
#include "unit/device/device_cases.hpp"

namespace stagecoach::test {
namespace {

using device::Device;
using device::EmbedArgs;
using device::Epilogue;
using device::LinearArgs;
using device::Weights;
using device::WidenArgs;

std::vector<PackFormat> formats() {
  std::vector<PackFormat> all;
  for (const auto packing : {Packing::int8, Packing::int4}) {
    for (const std::int64_t group : {32, 64, 128}) {
      all.push_back({packing, group});
    }
  }
  return all;
}

/// A packed matrix of exactly the size that may be read, `shift` bytes past where it was allocated,
/// and the f16 numbers that it means.
struct Matrix {
  Matrix(const PackFormat& row_format, std::int64_t num_rows, std::int64_t num_columns,
         unsigned seed, std::size_t shift = 0)
      : format(row_format),
        rows(num_rows),
        columns(num_columns),
        memory(shift + at(num_rows * packed_row_bytes(row_format, num_columns))),
        first(shift),
        meaning(at(num_rows * num_columns)) {
    pack_all(random_halves(num_rows * num_columns, seed, 0.02f));
  }

  void pack_all(const std::vector<Half>& values) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto of_row = std::span(values).subspan(at(row * columns), at(columns));
      auto* to = memory.data() + first + row * packed_row_bytes(format, columns);
      pack_row(format, of_row, to);
      unpack_row(format, to, std::span(meaning).subspan(at(row * columns), at(columns)));
    }
  }

  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
  [[nodiscard]] Weights packed() const { return {memory.data() + first, format}; }
  [[nodiscard]] Weights wide() const { return meaning.data(); }
  [[nodiscard]] std::string what() const {
    return fmt::format("{}, {} x {}", describe(format), rows, columns);
  }

  PackFormat format;
  std::int64_t rows;
  std::int64_t columns;
  std::vector<std::byte> memory;
  std::size_t first;
  std::vector<Half> meaning;
};

struct Inputs {
  Inputs(std::int64_t num_rows, const Matrix& matrix)
      : rows(num_rows),
        x(random_floats(num_rows * matrix.columns, 5)),
        bias(random_halves(matrix.rows, 6)),
        initial(random_floats(num_rows * matrix.rows, 7)) {}

  [[nodiscard]] LinearArgs args(const Matrix& matrix, const Weights& weight,
                                std::vector<float>& out, Epilogue epilogue) const {
    return {x.data(),       weight,      bias.data(), out.data(), rows,
            matrix.columns, matrix.rows, matrix.rows, epilogue};
  }
  [[nodiscard]] std::vector<float> product(const TestDevice& device, const Matrix& matrix,
                                           const Weights& weight, Epilogue epilogue) const {
    auto out = initial;
    device.run(&Device::linear, args(matrix, weight, out, epilogue));
    return out;
  }

  std::int64_t rows;
  std::vector<float> x;
  std::vector<Half> bias;
  std::vector<float> initial;
};

template <typename T>
bool equal_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return same_bits(std::span<const T>(a), std::span<const T>(b));
}

TEST(PackedLinear, AgreesWithScalarReference) {
  const auto devices = equal_devices();
  for (const auto& format : formats()) {
    for (const std::int64_t columns : {1, 31, 64, 100, 256, 1100}) {
      const Matrix matrix(format, 19, columns, 1);
      for (const std::int64_t rows : {1, 7, 40}) {
        const Inputs inputs(rows, matrix);
        auto out = inputs.initial;
        const auto expected =
            reference_linear(inputs.args(matrix, matrix.packed(), out, Epilogue::add_to_out));
        for (const auto& device : devices) {
          out = inputs.product(*device, matrix, matrix.packed(), Epilogue::add_to_out);
          for (std::size_t i = 0; i < out.size(); ++i) {
            ASSERT_NEAR(out[i], expected[i].value, 16 * 0x1p-24 * expected[i].magnitude)
                << matrix.what() << ", " << rows << " rows, element " << i;
          }
        }
      }
    }
  }
}

// The product with what packed weights mean: same bits, whatever the shape and the device.
TEST(PackedLinear, IsTheProductOfTheWidenedWeights) {
  const auto devices = equal_devices();
  for (const auto& format : formats()) {
    for (const std::int64_t columns : {1, 31, 33, 64, 100, 256, 1100, 4096}) {
      const Matrix matrix(format, 35, columns, 2);
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 13, 18, 24, 25, 40, 300}) {
        const Inputs inputs(rows, matrix);
        const auto expected =
            inputs.product(*devices.front(), matrix, matrix.wide(), Epilogue::relu);
        for (const auto& device : devices) {
          ASSERT_TRUE(equal_bits(inputs.product(*device, matrix, matrix.packed(), Epilogue::relu),
                                 expected))
              << matrix.what() << ", " << rows << " rows, " << (*device)->description();
        }
      }
    }
  }
}

TEST(PackedLinear, BitsDoNotDependOnTheNumberOfRows) {
  for (const auto& format : formats()) {
    const Matrix matrix(format, 21, 1100, 3);
    const Inputs inputs(40, matrix);
    for (const auto& device : equal_devices()) {
      const auto whole = inputs.product(*device, matrix, matrix.packed(), Epilogue::none);
      for (std::int64_t rows = 1; rows < 40; ++rows) {
        std::vector<float> out(Matrix::at(rows * 21));
        auto args = inputs.args(matrix, matrix.packed(), out, Epilogue::none);
        args.rows = rows;
        device->run(&Device::linear, args);
        ASSERT_TRUE(std::equal(out.begin(), out.end(), whole.begin()))
            << matrix.what() << ", " << rows << " rows";
      }
    }
  }
}

TEST(PackedLinear, BitsDoNotDependOnSplitsOfTheWeight) {
  for (const auto& format : formats()) {
    const Matrix matrix(format, 131, 300, 4);
    for (const auto& device : equal_devices()) {
      for (const std::int64_t rows : {1, 5, 40}) {
        const Inputs inputs(rows, matrix);
        auto split = inputs.initial;
        std::int64_t from = 0;
        for (const std::int64_t to : {1, 3, 8, 67, 130, 131}) {
          auto args =
              inputs.args(matrix, matrix.packed().from_row(from, 300), split, Epilogue::add_to_out);
          args.bias += from;
          args.out += from;
          args.out_features = to - from;
          device->run(&Device::linear, args);
          from = to;
        }
        EXPECT_TRUE(equal_bits(
            split, inputs.product(*device, matrix, matrix.packed(), Epilogue::add_to_out)))
            << matrix.what() << ", " << rows << " rows";
      }
    }
  }
}

TEST(PackedLinear, ReadsWeightsAtOddAddresses) {
  for (const auto& format : formats()) {
    const Matrix matrix(format, 9, 200, 4);
    const Matrix shifted(format, 9, 200, 4, 1);
    for (const auto& device : equal_devices()) {
      for (const std::int64_t rows : {1, 30}) {
        const Inputs inputs(rows, matrix);
        EXPECT_TRUE(equal_bits(inputs.product(*device, shifted, shifted.packed(), Epilogue::none),
                               inputs.product(*device, matrix, matrix.packed(), Epilogue::none)));
      }
    }
  }
}

// A group that is not a number makes its row's results so, and no others.
TEST(PackedLinear, NanGroupsStayInTheirRow) {
  for (const auto& format : formats()) {
    for (const std::int64_t columns : {5, 300}) {
      Matrix matrix(format, 9, columns, 1);
      auto values = matrix.meaning;
      values[Matrix::at(5 * columns - 1)] = Half{0x7c00};
      matrix.pack_all(values);
      for (const auto& device : equal_devices()) {
        for (const std::int64_t rows : {1, 30}) {
          const Inputs inputs(rows, matrix);
          const auto out = inputs.product(*device, matrix, matrix.packed(), Epilogue::relu);
          for (std::size_t i = 0; i < out.size(); ++i) {
            ASSERT_EQ(std::isnan(out[i]), i % 9 == 4) << matrix.what() << " " << i;
          }
        }
      }
    }
  }
}

TEST(PackedLinear, RefusesOtherGroups) {
  const TestDevice device;
  const Matrix matrix({Packing::int4, 32}, 3, 32, 1);
  const Inputs inputs(1, matrix);
  auto out = inputs.initial;
  const Weights weight(matrix.packed().data, {Packing::int4, 48});
  EXPECT_THROW(device->linear(device.stream(), inputs.args(matrix, weight, out, Epilogue::none)),
               InternalError);
}

// Any parameters and codes, not only those that packing makes, and room for nothing more.
TEST(Widen, GivesWhatTheRowsMean) {
  for (const auto& format : formats()) {
    for (const std::int64_t columns : {1, 15, 16, 17, 31, 33, 64, 100, 128, 500, 4100}) {
      Matrix matrix(format, 13, columns, 8, 1);
      std::mt19937 bits(9);
      for (auto& byte : matrix.memory) {
        byte = static_cast<std::byte>(bits());
      }
      for (std::int64_t row = 0; row < matrix.rows; ++row) {
        unpack_row(
            format, matrix.packed().from_row(row, columns).data,
            std::span(matrix.meaning).subspan(Matrix::at(row * columns), Matrix::at(columns)));
      }
      for (const auto& device : equal_devices()) {
        std::vector<Half> out(Matrix::at(13 * columns) + 1, Half{0x1234});
        device->run(&Device::widen, WidenArgs{matrix.packed(), out.data(), 13, columns});
        for (std::size_t i = 0; i + 1 < out.size(); ++i) {
          ASSERT_TRUE(out[i] == matrix.meaning[i] ||
                      (std::isnan(to_float(out[i])) && std::isnan(to_float(matrix.meaning[i]))))
              << matrix.what() << ", number " << i;
        }
        EXPECT_EQ(out.back(), Half{0x1234});
      }
    }
  }
}

TEST(Widen, RefusesWhatIsNotPacked) {
  const TestDevice device;
  std::vector<Half> halves(4);
  EXPECT_THROW(device->widen(device.stream(), {halves.data(), halves.data(), 1, 4}), InternalError);
}

TEST(PackedEmbed, AddsWhatTheTokensRowMeans) {
  for (const auto& format : formats()) {
    for (const std::int64_t width : {1, 16, 33, 500}) {
      const Matrix table(format, 10, width, 1);
      const auto position_table = random_halves(7 * width, 2);
      EmbedArgs args;
      args.tokens = {9, 0, 3, 3, 9, 1};
      args.positions = {6, 0, 2, 5, 6, 1};
      args.token_table = table.packed();
      args.position_table = position_table.data();
      args.width = width;
      const auto expected = reference_embed(args);
      for (const auto& device : equal_devices()) {
        std::vector<float> out(Matrix::at(6 * width) + 1, -3.0f);
        args.out = out.data();
        device->run(&Device::embed, args);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_EQ(out[i], static_cast<float>(expected[i])) << table.what() << " " << i;
        }
        EXPECT_EQ(out.back(), -3.0f);
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach::test
