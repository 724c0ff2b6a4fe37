#include <cmath>
#include <limits>
#include <optional>

#include "cuda/cuda_case.hpp"
#include "cuda/packed_matrix.hpp"
#include "support/scalar_reference.hpp"

namespace stagecoach::test {
namespace {

using device::Device;
using device::Epilogue;
using device::LinearArgs;
using device::Weights;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr auto kEpilogues = {Epilogue::none, Epilogue::relu, Epilogue::add_to_out};

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

struct Shape {
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
};

/// One product's matrices on the host; x is of f16 numbers, so that rounding it changes nothing.
struct Problem {
  explicit Problem(const Shape& s, std::optional<PackFormat> format = {}, unsigned seed = 1)
      : shape(s),
        x(random_floats(s.rows * s.in, seed)),
        weight(random_halves(s.out * s.in, seed + 1)),
        bias(random_halves(s.out, seed + 2)),
        initial(random_floats(s.rows * (s.out + 3), seed + 3)) {
    for (auto& value : x) {
      value = to_float(to_half(value));
    }
    if (format) {
      packed.emplace(*format, s.out, s.in, weight);
    }
  }

  [[nodiscard]] LinearArgs args(std::vector<float>& out, Epilogue epilogue,
                                bool with_bias = true) const {
    return {.x = x.data(),
            .weight = packed ? packed->weights() : Weights(weight.data()),
            .bias = with_bias ? bias.data() : nullptr,
            .out = out.data(),
            .rows = shape.rows,
            .in_features = shape.in,
            .out_features = shape.out,
            .out_stride = shape.out,
            .epilogue = epilogue};
  }
  [[nodiscard]] std::string what() const {
    return fmt::format("{} rows, {} in, {} out{}", shape.rows, shape.in, shape.out,
                       packed ? ", " + describe(packed->format) : "");
  }

  Shape shape;
  std::vector<float> x;
  std::vector<Half> weight;
  std::vector<Half> bias;
  std::vector<float> initial;
  std::optional<PackedMatrix> packed;
};

/// The problem's matrices on the device.
struct OnDevice {
  OnDevice(CudaCase& device, const Problem& problem)
      : cuda(device),
        x(cuda.put(problem.x)),
        weight(problem.packed ? Weights(cuda.put(problem.packed->bytes) + problem.packed->first,
                                        problem.packed->format)
                              : Weights(cuda.put(problem.weight))),
        bias(cuda.put(problem.bias)),
        out(cuda.put(problem.initial)) {}

  /// What `out` holds after the product, which was as in `initial` before.
  [[nodiscard]] std::vector<float> product(const LinearArgs& host,
                                           const std::vector<float>& initial) const {
    auto args = host;
    args.x = x;
    args.weight = weight;
    args.bias = host.bias == nullptr ? nullptr : bias;
    args.out = out;
    cuda->copy_from_host(cuda.stream(), reinterpret_cast<std::byte*>(out),
                         reinterpret_cast<const std::byte*>(initial.data()), initial.size() * 4);
    cuda.run(&Device::linear, args);
    return cuda.get(out, initial.size());
  }

  CudaCase& cuda;
  float* x;
  Weights weight;
  Half* bias;
  float* out;
};

void expect_close(const float* out, std::int64_t stride, const std::vector<Sum>& expected,
                  const Shape& shape, const std::string& what) {
  for (std::int64_t i = 0; i < shape.rows * shape.out; ++i) {
    const auto& sum = expected[at(i)];
    ASSERT_NEAR(out[i / shape.out * stride + i % shape.out], sum.value,
                32 * 0x1p-24 * sum.magnitude)
        << what << ", element " << i;
  }
}

/// By the reference, and by the host device, with every epilogue, dense and in wider rows.
void check_product(CudaCase& cuda, const TestDevice& host, const Problem& problem) {
  const OnDevice device(cuda, problem);
  const auto& shape = problem.shape;
  for (const auto epilogue : kEpilogues) {
    for (const bool with_bias : {true, false}) {
      for (const std::int64_t stride : {shape.out, shape.out + 3}) {
        auto initial = problem.initial;
        auto args = problem.args(initial, epilogue, with_bias);
        args.out_stride = stride;
        const auto expected = reference_linear(args);
        const auto out = device.product(args, initial);
        const auto what = fmt::format("{}, stride {}, epilogue {}", problem.what(), stride,
                                      static_cast<int>(epilogue));
        expect_close(out.data(), stride, expected, shape, what);
        for (std::int64_t i = 0; i < shape.rows * stride; ++i) {
          if (i % stride >= shape.out) {
            ASSERT_EQ(out[at(i)], problem.initial[at(i)]) << what << ", behind a row";
          }
        }
        host.run(&Device::linear, args);
        expect_close(initial.data(), stride, expected, shape, "host, " + what);
      }
    }
  }
}

TEST(CudaLinear, AgreesWithScalarReferenceAndHost) {
  CudaCase cuda;
  const TestDevice host;
  const std::vector<Shape> shapes = {{1, 1, 1},    {2, 3, 5},     {7, 16, 33},  {13, 17, 4},
                                     {3, 80, 130}, {33, 200, 33}, {5, 768, 70}, {14, 1000, 9},
                                     {9, 7, 1030}, {2, 4096, 10}, {17, 64, 64}};
  for (const auto& shape : shapes) {
    check_product(cuda, host, Problem(shape));
  }
}

TEST(CudaLinear, PackedAgreesWithScalarReferenceAndHost) {
  CudaCase cuda;
  const TestDevice host;
  for (const auto& format : pack_formats()) {
    for (const auto& shape : {Shape{1, 1, 1}, Shape{2, 31, 5}, Shape{3, 80, 33}, Shape{4, 200, 7},
                              Shape{8, 1000, 35}, Shape{5, 1100, 64}, Shape{33, 96, 3}}) {
      check_product(cuda, host, Problem(shape, format));
    }
  }
  check_product(cuda, host, Problem({7, 4096, 34}, PackFormat{Packing::int4, 64}));
  check_product(cuda, host, Problem({1, 4096, 34}, PackFormat{Packing::int8, 64}));
}

TEST(CudaLinear, MoreRowsThanScratchHolds) {
  CudaCase cuda;
  const TestDevice host;
  check_product(cuda, host, Problem({1030, 9, 5}));
}

TEST(CudaLinear, NoRowsIsNoWork) {
  CudaCase cuda;
  for (const auto& format : {PackFormat{}, PackFormat{Packing::int4, 64}}) {
    const Problem problem({1, 64, 3},
                          format.packed() ? std::optional(format) : std::optional<PackFormat>());
    auto initial = problem.initial;
    auto args = problem.args(initial, Epilogue::relu);
    args.rows = 0;
    EXPECT_EQ(OnDevice(cuda, problem).product(args, initial), initial);
  }
}

// Each row's sum has one order, whatever the number of rows.
TEST(CudaLinear, PackedBitsDoNotDependOnTheNumberOfRows) {
  CudaCase cuda;
  for (const auto& format : {PackFormat{Packing::int8, 32}, PackFormat{Packing::int4, 128}}) {
    const Problem problem({17, 1100, 21}, format);
    const OnDevice device(cuda, problem);
    auto initial = problem.initial;
    const auto whole = device.product(problem.args(initial, Epilogue::none), initial);
    for (std::int64_t rows = 1; rows < 17; ++rows) {
      auto args = problem.args(initial, Epilogue::none);
      args.rows = rows;
      const auto out = device.product(args, initial);
      ASSERT_TRUE(std::equal(out.begin(), out.begin() + rows * 21, whole.begin())) << rows;
    }
  }
}

TEST(CudaLinear, PackedRowsAtAnyAddress) {
  CudaCase cuda;
  for (const auto& format : pack_formats()) {
    Problem problem({3, 200, 9}, format);
    auto initial = problem.initial;
    const auto args = problem.args(initial, Epilogue::none);
    const auto expected = OnDevice(cuda, problem).product(args, initial);
    problem.packed.emplace(format, 9, 200, problem.weight, 1);
    EXPECT_EQ(OnDevice(cuda, problem).product(args, initial), expected);
  }
}

TEST(CudaLinear, InputsAndOutputsAtAnyAddress) {
  CudaCase cuda;
  for (const bool packed : {false, true}) {
    const Problem problem({5, 200, 24},
                          packed ? std::optional(PackFormat{Packing::int4, 64}) : std::nullopt);
    auto initial = problem.initial;
    const auto args = problem.args(initial, Epilogue::relu);
    const auto expected = reference_linear(args);
    OnDevice device(cuda, problem);
    const auto behind_one = [&](auto items) {
      items.insert(items.begin(), items.front());
      return cuda.put(items) + 1;
    };
    device.x = behind_one(problem.x);
    device.bias = behind_one(problem.bias);
    device.out = behind_one(problem.initial);
    expect_close(device.product(args, initial).data(), 24, expected, problem.shape, problem.what());
  }
}

/// A row of zeros and one number, times a weight of ones.
float product_of(CudaCase& cuda, float x, bool packed) {
  constexpr std::int64_t kIn = 32;
  Problem problem({1, kIn, 1});
  std::fill(problem.x.begin(), problem.x.end(), 0.0f);
  problem.x[7] = x;
  std::fill(problem.weight.begin(), problem.weight.end(), to_half(1.0f));
  if (packed) {
    problem.packed.emplace(PackFormat{Packing::int8, 32}, 1, kIn, problem.weight);
  }
  auto initial = problem.initial;
  return OnDevice(cuda, problem).product(problem.args(initial, Epilogue::none, false), initial)[0];
}

TEST(CudaLinear, InputsAreRoundedToHalves) {
  CudaCase cuda;
  for (const bool packed : {false, true}) {
    for (const float x :
         {1.0f + 0x1p-11f, 1.0f + 0x1.8p-10f, -3.3f, 0x1p-24f, 0x1.8p-24f, 0x1p-25f, 65519.0f}) {
      EXPECT_EQ(product_of(cuda, x, packed), to_float(to_half(x))) << x;
    }
    for (const float x : {65520.0f, 1e30f, kInfinity}) {
      EXPECT_EQ(product_of(cuda, x, packed), 65504.0f) << x;
      EXPECT_EQ(product_of(cuda, -x, packed), -65504.0f) << x;
    }
    EXPECT_TRUE(std::isnan(product_of(cuda, NAN, packed)));
  }
}

// Padding and neighbours must not leak: NaN in one row of x or of the weight stays there.
TEST(CudaLinear, NanStaysInItsRowAndColumn) {
  CudaCase cuda;
  for (const auto& format :
       {PackFormat{}, PackFormat{Packing::int8, 32}, PackFormat{Packing::int4, 64}}) {
    for (const std::int64_t rows : {3, 25}) {
      for (const std::int64_t in : {5, 37, 1029}) {
        Problem problem({rows, in, 9});
        std::fill_n(problem.x.begin() + 1 * in, in, NAN);
        std::fill_n(problem.weight.begin() + 4 * in, in, Half{0x7e00});
        if (format.packed()) {
          problem.packed.emplace(format, 9, in, problem.weight);
        }
        auto initial = problem.initial;
        const auto out =
            OnDevice(cuda, problem).product(problem.args(initial, Epilogue::relu), initial);
        for (std::int64_t i = 0; i < rows * 9; ++i) {
          const bool poisoned = i / 9 == 1 || i % 9 == 4;
          ASSERT_EQ(std::isnan(out[at(i)]), poisoned) << problem.what() << ", " << i;
        }
      }
    }
  }
}

TEST(CudaLinear, LargestAndSmallestWeights) {
  CudaCase cuda;
  const std::int64_t in = 20;
  Problem problem({2, in, 3});
  std::fill(problem.x.begin(), problem.x.end(), 1.0f);
  std::fill_n(problem.weight.begin(), in, to_half(65504.0f));
  std::fill_n(problem.weight.begin() + in, in, Half{1});  // 2^-24
  std::fill_n(problem.weight.begin() + 2 * in, in, Half{0x8000});
  auto initial = problem.initial;
  const auto args = problem.args(initial, Epilogue::none, false);
  for (const bool packed : {false, true}) {
    if (packed) {
      problem.packed.emplace(PackFormat{Packing::int4, 32}, 3, in, problem.weight);
    }
    const auto out = OnDevice(cuda, problem).product(args, initial);
    for (const std::size_t row : {0u, 3u}) {
      EXPECT_EQ(out[row], 65504.0f * 20);
      EXPECT_EQ(out[row + 1], 20 * 0x1p-24f);
      EXPECT_EQ(out[row + 2], 0.0f);
    }
  }
}

}  // namespace
}  // namespace stagecoach::test
