#include <algorithm>
#include <cmath>
#include <limits>

#include "support/scalar_reference.hpp"
#include "unit/device/device_cases.hpp"

namespace stagecoach::test {
namespace {

using device::Device;
using device::Epilogue;
using device::LinearArgs;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Shape {
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
};

/// One product's matrices, of exactly the size that may be touched.
struct Problem {
  explicit Problem(const Shape& s, unsigned seed = 1)
      : shape(s),
        x(random_floats(s.rows * s.in, seed)),
        weight(random_halves(s.out * s.in, seed + 1)),
        bias(random_halves(s.out, seed + 2)),
        initial(random_floats(s.rows * s.out, seed + 3)) {}

  [[nodiscard]] LinearArgs args(std::vector<float>& out, Epilogue epilogue,
                                bool with_bias = true) const {
    LinearArgs args;
    args.x = x.data();
    args.weight = weight.data();
    args.bias = with_bias ? bias.data() : nullptr;
    args.out = out.data();
    args.rows = shape.rows;
    args.in_features = shape.in;
    args.out_features = args.out_stride = shape.out;
    args.epilogue = epilogue;
    return args;
  }

  Shape shape;
  std::vector<float> x;
  std::vector<Half> weight;
  std::vector<Half> bias;
  std::vector<float> initial;  // what `out` holds before
};

std::vector<float> product(const TestDevice& device, const Problem& problem, Epilogue epilogue) {
  auto out = problem.initial;
  device.run(&Device::linear, problem.args(out, epilogue));
  return out;
}

void expect_close(const std::vector<float>& out, const std::vector<Sum>& expected,
                  const std::string& what) {
  ASSERT_EQ(out.size(), expected.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    // Sixteen lanes and blocks keep chains short: 16 roundings of the whole are generous.
    const double bound = 16 * 0x1p-24 * expected[i].magnitude;
    ASSERT_NEAR(out[i], expected[i].value, bound) << what << ", element " << i;
  }
}

TEST(Linear, AgreesWithScalarReference) {
  const std::vector<Shape> shapes = {{1, 1, 1},     {2, 3, 5},      {7, 16, 33},   {13, 17, 4},
                                     {3, 100, 130}, {64, 100, 33},  {20, 768, 70}, {14, 1000, 9},
                                     {5, 1024, 6},  {30, 1025, 67}, {2, 4096, 10}, {40, 2500, 65}};
  const auto devices = equal_devices();
  for (const auto& shape : shapes) {
    const Problem problem(shape);
    for (const auto epilogue : {Epilogue::none, Epilogue::relu, Epilogue::add_to_out}) {
      for (const bool with_bias : {true, false}) {
        auto initial = problem.initial;
        const auto expected = reference_linear(problem.args(initial, epilogue, with_bias));
        for (const auto& device : devices) {
          auto out = problem.initial;
          device->run(&Device::linear, problem.args(out, epilogue, with_bias));
          expect_close(
              out, expected,
              fmt::format("{} rows, {} in, {} out, epilogue {}, {}", shape.rows, shape.in,
                          shape.out, static_cast<int>(epilogue), (*device)->description()));
        }
      }
    }
  }
}

TEST(Linear, LongSumsStayAccurate) {
  const Problem problem({15, 16384, 7});
  auto out = problem.initial;
  const auto expected = reference_linear(problem.args(out, Epilogue::none));
  const TestDevice device;
  expect_close(product(device, problem, Epilogue::none), expected, "16384 features");
}

// The rows of `problem` from `first` on, alone, must be the same bits as in the whole.
void expect_rows_alone(const TestDevice& device, const Problem& problem, std::int64_t first,
                       std::int64_t rows, Epilogue epilogue, const std::vector<float>& whole) {
  const auto [total, in, out_features] = problem.shape;
  const auto from = problem.initial.begin() + first * out_features;
  std::vector<float> out(from, from + rows * out_features);
  auto args = problem.args(out, epilogue);
  args.x += first * in;
  args.rows = rows;
  device.run(&Device::linear, args);
  const auto expected = std::span<const float>(whole).subspan(
      static_cast<std::size_t>(first * out_features), out.size());
  ASSERT_TRUE(same_bits(std::span<const float>(out), expected))
      << rows << " rows from " << first << ", " << in << " in, " << out_features << " out, "
      << device->description();
}

TEST(Linear, BitsDoNotDependOnTheNumberOfRows) {
  for (const auto& device : equal_devices()) {
    const Problem small({600, 100, 33});
    const auto whole = product(*device, small, Epilogue::relu);
    for (std::int64_t rows = 1; rows <= 600; rows += rows < 30 ? 1 : 19) {
      expect_rows_alone(*device, small, (600 - rows) / 2, rows, Epilogue::relu, whole);
    }
    for (const std::int64_t in : {64, 768, 1000, 1023, 1025, 4096}) {
      const Problem problem({70, in, 67});
      const auto sums = product(*device, problem, Epilogue::add_to_out);
      for (std::int64_t rows = 1; rows <= 70; rows += rows < 20 ? 1 : 7) {
        expect_rows_alone(*device, problem, 70 - rows, rows, Epilogue::add_to_out, sums);
      }
    }
  }
}

TEST(Linear, BitsDoNotDependOnThreadsOrRegisterWidth) {
  const auto devices = equal_devices();
  for (const auto& shape :
       {Shape{1, 1000, 300}, Shape{9, 16384, 33}, Shape{50, 768, 2048}, Shape{600, 130, 17}}) {
    const Problem problem(shape);
    const auto first = product(*devices.front(), problem, Epilogue::none);
    for (const auto& device : devices) {
      const auto other = product(*device, problem, Epilogue::none);
      EXPECT_TRUE(same_bits(std::span<const float>(first), std::span<const float>(other)))
          << (*device)->description() << " against " << (*devices.front())->description();
    }
  }
}

TEST(Linear, BitsDoNotDependOnSplitsOfTheWeight) {
  for (const auto& device : equal_devices()) {
    for (const std::int64_t rows : {1, 5, 40}) {
      const Problem problem({rows, 1100, 131});
      const auto whole = product(*device, problem, Epilogue::relu);
      auto split = problem.initial;
      std::int64_t from = 0;
      for (const std::int64_t to : {1, 3, 8, 67, 130, 131}) {
        auto args = problem.args(split, Epilogue::relu);
        args.weight = args.weight.from_row(from, 1100);
        args.bias += from;
        args.out += from;
        args.out_features = to - from;
        device->run(&Device::linear, args);
        from = to;
      }
      EXPECT_TRUE(same_bits(std::span<const float>(whole), std::span<const float>(split)));
    }
  }
}

TEST(Linear, ReadsWeightsAtOddAddresses) {
  const TestDevice device;
  const Problem problem({3, 64, 21});
  std::vector<Half> shifted(problem.weight.size() + 1);
  std::copy(problem.weight.begin(), problem.weight.end(), shifted.begin() + 1);
  auto out = problem.initial;
  auto args = problem.args(out, Epilogue::none);
  args.weight = shifted.data() + 1;
  device.run(&Device::linear, args);
  const auto expected = product(device, problem, Epilogue::none);
  EXPECT_TRUE(same_bits(std::span<const float>(out), std::span<const float>(expected)));
}

TEST(Linear, LeavesTheRestOfWiderRowsAlone) {
  for (const auto& device : equal_devices()) {
    for (const std::int64_t rows : {4, 30}) {
      const Problem problem({rows, 50, 7});
      std::vector<float> out(static_cast<std::size_t>(rows * 11), -3.0f);
      auto args = problem.args(out, Epilogue::none);
      args.out_stride = 11;
      device->run(&Device::linear, args);
      const auto dense = product(*device, problem, Epilogue::none);
      for (std::int64_t i = 0; i < rows * 11; ++i) {
        const auto column = i % 11;
        const auto expected =
            column < 7 ? dense[static_cast<std::size_t>(i / 11 * 7 + column)] : -3.0f;
        ASSERT_EQ(out[static_cast<std::size_t>(i)], expected);
      }
    }
  }
}

// Padding and neighbours must not leak: NaN in one row of x or of the weight stays there.
TEST(Linear, NanStaysInItsRowAndColumn) {
  for (const auto& device : equal_devices()) {
    for (const std::int64_t rows : {3, 25}) {
      for (const std::int64_t in : {5, 37, 1029}) {
        Problem problem({rows, in, 9});
        std::fill_n(problem.x.begin() + 1 * in, in, kNan);
        std::fill_n(problem.weight.begin() + 4 * in, in, Half{0x7e00});
        const auto out = product(*device, problem, Epilogue::relu);
        for (std::int64_t i = 0; i < rows * 9; ++i) {
          const bool poisoned = i / 9 == 1 || i % 9 == 4;
          ASSERT_EQ(std::isnan(out[static_cast<std::size_t>(i)]), poisoned) << i;
        }
      }
    }
  }
}

TEST(Linear, ExtremeValues) {
  for (const auto& device : equal_devices()) {
    for (const std::int64_t rows : {1, 30}) {
      const std::int64_t in = 20;
      std::vector<float> x(static_cast<std::size_t>(rows * in), 1.0f);
      const auto largest = to_half(65504.0f);
      const Half denormal{1};  // 2^-24
      std::vector<Half> weight(4 * in);
      std::fill_n(weight.begin(), in, largest);
      std::fill_n(weight.begin() + in, in, denormal);
      std::fill_n(weight.begin() + 2 * in, in, Half{0x7c00});  // infinity
      std::fill_n(weight.begin() + 3 * in, in, Half{0x8000});  // minus zero
      std::vector<float> out(static_cast<std::size_t>(rows * 4));
      LinearArgs args{x.data(), weight.data(), nullptr, out.data(), rows, in, 4, 4, Epilogue::none};
      device->run(&Device::linear, args);
      for (std::int64_t row = 0; row < rows; ++row) {
        const float* result = out.data() + row * 4;
        EXPECT_EQ(result[0], 65504.0f * 20);
        EXPECT_EQ(result[1], 20 * 0x1p-24f);
        EXPECT_EQ(result[2], kInfinity);
        EXPECT_EQ(result[3], 0.0f);
      }
      std::fill(x.begin(), x.end(), 3e38f);
      device->run(&Device::linear, args);
      EXPECT_EQ(out[0], kInfinity);
    }
  }
}

TEST(Linear, NoRowsIsNoWork) {
  const TestDevice device;
  const Problem problem({1, 8, 3});
  auto out = problem.initial;
  auto args = problem.args(out, Epilogue::none);
  args.rows = 0;
  device.run(&Device::linear, args);
  EXPECT_EQ(out, problem.initial);
}

}  // namespace
}  // namespace stagecoach::test
