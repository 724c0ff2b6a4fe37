// Packed weights: their products beside those with f16 weights and beside a loop that only reads
// the f16 weights, and their widening beside memcpy into the same place. What is compared
// alternates, so that noise hits all alike. Few rows go through several matrices, so that packed
// weights, too, are more than a last-level cache holds.
#include <benchmark/benchmark.h>

#include <cstring>

#include "micro/device_fixture.hpp"

namespace stagecoach::bench {
namespace {

constexpr std::int64_t kFeatures = 8192;
constexpr std::int64_t kNumbers = kFeatures * kFeatures;
constexpr std::int64_t kMaxRows = 512;
constexpr std::int64_t kFewRows = 24;

std::int64_t matrices_of(const PackFormat& format) {
  return format.packing == Packing::int4 ? 10 : 5;
}

// Copies of one matrix, as f16 and packed.
class Matrices {
 public:
  Matrices(const PackFormat& format, std::int64_t count)
      : format_(format),
        row_bytes_(packed_row_bytes(format, kFeatures)),
        wide_(static_cast<std::size_t>(count * kNumbers * 2), "a benchmark"),
        packed_(static_cast<std::size_t>(count * kFeatures * row_bytes_), "a benchmark") {
    const Numbers<Half> numbers(kNumbers);
    for (std::int64_t row = 0; row < kFeatures; ++row) {
      const std::span<const Half> of_row(numbers.data() + row * kFeatures, kFeatures);
      pack_row(format, of_row, packed_.data() + row * row_bytes_);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(wide_.data() + i * kNumbers * 2, numbers.data(), kNumbers * 2);
      if (i > 0) {
        std::memcpy(packed_.data() + i * packed_bytes(), packed_.data(),
                    static_cast<std::size_t>(packed_bytes()));
      }
    }
  }

  [[nodiscard]] std::int64_t packed_bytes() const { return kFeatures * row_bytes_; }
  [[nodiscard]] device::Weights wide(std::int64_t i) const {
    return reinterpret_cast<const Half*>(wide_.data()) + i * kNumbers;
  }
  [[nodiscard]] device::Weights packed(std::int64_t i) const {
    return {packed_.data() + i * packed_bytes(), format_};
  }
  [[nodiscard]] std::byte* wide_data(std::int64_t i) const {
    return wide_.data() + i * kNumbers * 2;
  }
  [[nodiscard]] std::span<const std::byte> all_wide() const { return wide_.bytes(); }

 private:
  PackFormat format_;
  std::int64_t row_bytes_;
  AlignedMemory wide_;
  AlignedMemory packed_;
};

void products(benchmark::State& state, const PackFormat& format, const std::string& isa) {
  const std::int64_t rows = state.range(0);
  const int threads = static_cast<int>(state.range(1));
  const std::int64_t count = rows <= kFewRows ? matrices_of(format) : 1;
  DeviceFixture fixture(isa, threads);
  device::ThreadPool pool(threads);
  const Numbers<float> x(kMaxRows * kFeatures);
  const Numbers<float> out(kMaxRows * kFeatures);
  const Matrices weights(format, count);
  const auto product = [&](const device::Weights& weight) {
    fixture.device->linear(*fixture.stream, {x.data(), weight, nullptr, out.data(), rows, kFeatures,
                                             kFeatures, kFeatures, device::Epilogue::none});
  };
  Median packed;
  Median wide;
  Median reading;
  for (auto _ : state) {
    packed.add(seconds_of([&] {
      for (std::int64_t i = 0; i < count; ++i) {
        product(weights.packed(i));
      }
      fixture.finish();
    }));
    wide.add(seconds_of([&] {
      for (std::int64_t i = 0; i < count; ++i) {
        product(weights.wide(i));
      }
      fixture.finish();
    }));
    reading.add(seconds_of([&] { benchmark::DoNotOptimize(read_all(weights.all_wide(), pool)); }));
  }
  const auto bytes = static_cast<double>(count * weights.packed_bytes());
  const double flops = 2.0 * static_cast<double>(count * rows * kNumbers);
  state.counters["GB/s"] = bytes / packed.value() * 1e-9;
  state.counters["GFLOP/s"] = flops / packed.value() * 1e-9;
  state.counters["to_f16"] = wide.value() / packed.value();
  state.counters["to_reading"] = reading.value() / packed.value();
}

void copy_all(std::byte* to, const std::byte* from, device::ThreadPool& pool) {
  constexpr std::int64_t kParts = 64;
  constexpr std::int64_t kPartBytes = kNumbers * 2 / kParts;
  pool.parallel_for(kParts, [&](std::int64_t part, int /*worker*/) {
    std::memcpy(to + part * kPartBytes, from + part * kPartBytes, kPartBytes);
  });
}

void widening(benchmark::State& state, const PackFormat& format, const std::string& isa) {
  constexpr std::int64_t kMatrices = 4;
  const int threads = static_cast<int>(state.range(0));
  DeviceFixture fixture(isa, threads);
  device::ThreadPool pool(threads);
  const Matrices weights(format, 2 * kMatrices);
  Median ours;
  Median theirs;
  for (auto _ : state) {
    ours.add(seconds_of([&] {
      for (std::int64_t i = 0; i < kMatrices; ++i) {
        auto* to = reinterpret_cast<Half*>(weights.wide_data(i));
        fixture.device->widen(*fixture.stream, {weights.packed(i), to, kFeatures, kFeatures});
      }
      fixture.finish();
    }));
    theirs.add(seconds_of([&] {
      for (std::int64_t i = 0; i < kMatrices; ++i) {
        copy_all(weights.wide_data(i), weights.wide_data(kMatrices + i), pool);
      }
    }));
  }
  const auto bytes = static_cast<double>(kMatrices * kNumbers * 2);
  state.counters["GB/s"] = bytes / ours.value() * 1e-9;
  state.counters["memcpy"] = bytes / theirs.value() * 1e-9;
  state.counters["to_memcpy"] = theirs.value() / ours.value();
}

void register_all() {
  for (const std::string isa : {"auto", "avx2"}) {
    for (const auto packing : {Packing::int4, Packing::int8}) {
      const PackFormat format{packing, 64};
      const auto name = to_string(packing) + "/" + isa;
      auto* bench = benchmark::RegisterBenchmark(
          ("linear/" + name).c_str(),
          [=](benchmark::State& state) { products(state, format, isa); });
      bench->ArgsProduct({{1, 2, 4, 8, 16, 24, 64, 512}, {1, 2}});
      bench->UseRealTime()->Unit(benchmark::kMillisecond)->MinTime(2);
      benchmark::RegisterBenchmark(("widen/" + name).c_str(),
                                   [=](benchmark::State& state) { widening(state, format, isa); })
          ->Arg(1)
          ->Arg(2)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond)
          ->MinTime(2);
    }
  }
}

const bool kRegistered = (register_all(), true);

}  // namespace
}  // namespace stagecoach::bench
