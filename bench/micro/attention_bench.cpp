// Attention of decoded tokens, which reads the whole KV cache once, beside a loop that only reads
// it; of prompt pieces; the partial results of every page instead; sparse attention beside dense;
// and storing keys and values. Bytes are those of the cache as it is kept, packed or not.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>

#include "micro/device_fixture.hpp"

namespace stagecoach::bench {
namespace {

constexpr std::int64_t kHeads = 32;
constexpr std::int64_t kHeadDim = 128;

struct Shape {
  std::int64_t sequences = 0;
  std::int64_t rows = 0;
  std::int64_t context = 0;
  std::int64_t page_tokens = 0;
  device::KvFormat format{};
  double sparsity = 0;  ///< 0: dense

  [[nodiscard]] std::int64_t pages() const { return (context + page_tokens - 1) / page_tokens; }
  [[nodiscard]] std::int64_t page_bytes() const {
    return 2 * kHeads * device::kv_head_bytes(format, page_tokens, kHeadDim);
  }
  [[nodiscard]] std::int64_t partial_elements() const {
    return device::attention_partial_floats(rows, kHeads, kHeadDim);
  }
};

/// The matrices of one operation and its arguments; pages hold random numbers.
class Batch {
 public:
  explicit Batch(const Shape& shape)
      : cache_(static_cast<std::size_t>(shape.sequences * shape.pages() * shape.page_bytes()),
               "a benchmark"),
        partials_(shape.sequences * shape.pages() * shape.partial_elements()),
        matrix_(shape.sequences * shape.rows * kRowStride),
        out_(shape.sequences * shape.rows * kHeads * kHeadDim) {
    args_.query = matrix_.data();
    args_.key = args_.query + kHeads * kHeadDim;
    args_.value = args_.key + kHeads * kHeadDim;
    args_.row_stride = kRowStride;
    args_.out = out_.data();
    args_.heads = args_.kv_heads = kHeads;
    args_.head_dim = kHeadDim;
    args_.page_tokens = shape.page_tokens;
    args_.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
    args_.kv_format = shape.format;
    args_.sparsity = shape.sparsity == 0 ? 1 : shape.sparsity;
    for (std::int64_t s = 0; s < shape.sequences; ++s) {
      args_.sequences.push_back(sequence(shape, s));
    }
  }

  /// Stores random keys and values of all positions.
  void fill(const DeviceFixture& fixture) const {
    const auto& last = args_.sequences.front();
    const std::int64_t tokens = last.first_position + last.num_rows;
    const Numbers<float> numbers(tokens * kRowStride);
    auto args = args_;
    args.key = numbers.data();
    args.value = args.key + kHeads * kHeadDim;
    for (auto& sequence : args.sequences) {
      sequence.first_row = 0;
      sequence.first_position = 0;
      sequence.num_rows = static_cast<std::int32_t>(tokens);
    }
    fixture.device->store_kv(*fixture.stream, args);
    fixture.finish();
  }

  [[nodiscard]] const device::AttentionArgs& args() const { return args_; }
  [[nodiscard]] device::AttentionArgs dense_args() const {
    auto args = args_;
    for (auto& sequence : args.sequences) {
      sequence.sparse = false;
    }
    return args;
  }
  [[nodiscard]] std::span<const std::byte> cache() const { return cache_.bytes(); }

 private:
  static constexpr std::int64_t kRowStride = 3 * kHeads * kHeadDim;

  [[nodiscard]] device::SequenceRows sequence(const Shape& shape, std::int64_t index) const {
    device::SequenceRows sequence;
    sequence.first_row = static_cast<std::int32_t>(index * shape.rows);
    sequence.num_rows = static_cast<std::int32_t>(shape.rows);
    sequence.first_position = static_cast<std::int32_t>(shape.context - shape.rows);
    sequence.sparse = shape.sparsity != 0;
    for (std::int64_t p = 0; p < shape.pages(); ++p) {
      const std::int64_t page = index * shape.pages() + p;
      sequence.pages.push_back(cache_.data() + page * shape.page_bytes());
      sequence.partials.push_back(partials_.data() + page * shape.partial_elements());
    }
    return sequence;
  }

  AlignedMemory cache_;
  Numbers<float> partials_;
  Numbers<float> matrix_;
  Numbers<float> out_;
  device::AttentionArgs args_;
};

using Operation = void (device::Device::*)(device::Stream&, device::AttentionArgs);

double seconds_of_run(const DeviceFixture& fixture, Operation operation,
                      const device::AttentionArgs& args) {
  return seconds_of([&] {
    (fixture.device.get()->*operation)(*fixture.stream, args);
    fixture.finish();
  });
}

void measure(benchmark::State& state, Operation operation, const Shape& shape, int threads) {
  const DeviceFixture fixture("auto", threads);
  device::ThreadPool readers(threads);
  const Batch batch(shape);
  batch.fill(fixture);
  Median ours;
  Median reading;
  for (auto _ : state) {
    ours.add(seconds_of_run(fixture, operation, batch.args()));
    reading.add(seconds_of([&] { benchmark::DoNotOptimize(read_all(batch.cache(), readers)); }));
  }
  const auto bytes = static_cast<double>(batch.cache().size());
  state.counters["GB/s"] = bytes / ours.value() * 1e-9;
  state.counters["reading"] = bytes / reading.value() * 1e-9;
  state.counters["to_reading"] = reading.value() / ours.value();
  state.counters["GFLOP/s"] =
      4.0 * static_cast<double>(shape.sequences * shape.rows * kHeads * kHeadDim * shape.context) /
      ours.value() * 1e-9;
  state.counters["ns/token/head"] =
      ours.value() * 1e9 * threads /
      static_cast<double>(shape.sequences * shape.rows * kHeads * shape.context);
}

constexpr std::int64_t kFormats = 3;
device::KvFormat format_of(std::int64_t index) {
  const device::KvFormat formats[kFormats] = {
      device::KvType::f16, {device::KvType::int8, 64}, {device::KvType::int4, 64}};
  return formats[index];
}

// About 400 MB in each format: more than caches hold.
std::int64_t sequences_of(std::int64_t format) { return 24 << format; }

// Arguments of all: tokens of a page, threads, and where packed ones are of interest as well the
// format: 0 f16, 1 int8, 2 int4.
void decode(benchmark::State& state) {
  measure(state, &device::Device::attention,
          {sequences_of(state.range(2)), 1, 1024, state.range(0), format_of(state.range(2))},
          static_cast<int>(state.range(1)));
}
void prefill(benchmark::State& state) {
  measure(state, &device::Device::attention,
          {1, 256, 1024, state.range(0), format_of(state.range(2))},
          static_cast<int>(state.range(1)));
}
void decode_partials(benchmark::State& state) {
  measure(state, &device::Device::attention_partials,
          {sequences_of(state.range(2)), 1, 1024, state.range(0), format_of(state.range(2))},
          static_cast<int>(state.range(1)));
}
void prefill_partials(benchmark::State& state) {
  measure(state, &device::Device::attention_partials, {1, 256, 1024, state.range(0)},
          static_cast<int>(state.range(1)));
}

// What the arithmetic takes: one sequence of which all is in the second-level cache, the fastest of
// many runs. Arguments: tokens of a page, format, percents of the values that are kept (0: dense).
void decode_in_cache(benchmark::State& state) {
  const std::int64_t context = std::int64_t{96} << state.range(1);
  const DeviceFixture fixture("auto", 1);
  const Batch batch({1, 1, context, state.range(0), format_of(state.range(1)),
                     static_cast<double>(state.range(2)) / 100});
  batch.fill(fixture);
  double fastest = seconds_of_run(fixture, &device::Device::attention, batch.args());
  for (auto _ : state) {
    fastest = std::min(fastest, seconds_of_run(fixture, &device::Device::attention, batch.args()));
  }
  state.counters["ns/token/head"] = fastest * 1e9 / static_cast<double>(kHeads * context);
  state.counters["GB/s"] = static_cast<double>(batch.cache().size()) / fastest * 1e-9;
}

// A tenth of the values, beside all of them. Arguments: tokens of context, threads, format.
void decode_sparse(benchmark::State& state) {
  const auto threads = static_cast<int>(state.range(1));
  const std::int64_t context = state.range(0);
  const DeviceFixture fixture("auto", threads);
  const Batch batch({sequences_of(state.range(2)) * 1024 / context + 1, 1, context, 16,
                     format_of(state.range(2)), 0.1});
  batch.fill(fixture);
  const auto dense_args = batch.dense_args();
  Median sparse;
  Median dense;
  for (auto _ : state) {
    sparse.add(seconds_of_run(fixture, &device::Device::attention, batch.args()));
    dense.add(seconds_of_run(fixture, &device::Device::attention, dense_args));
  }
  state.counters["sparse_ms"] = sparse.value() * 1e3;
  state.counters["dense_ms"] = dense.value() * 1e3;
  state.counters["to_dense"] = sparse.value() / dense.value();
}

// Keys and values of a prompt. Arguments: threads, format.
void store(benchmark::State& state) {
  const auto threads = static_cast<int>(state.range(0));
  const DeviceFixture fixture("auto", threads);
  const Batch batch({1, 1024, 1024, 16, format_of(state.range(1))});
  Median ours;
  for (auto _ : state) {
    ours.add(seconds_of_run(fixture, &device::Device::store_kv, batch.args()));
  }
  state.counters["ns/number"] = ours.value() * 1e9 / (1024.0 * 2 * kHeads * kHeadDim);
}

BENCHMARK(decode)
    ->ArgsProduct({{16, 32, 64}, {1, 2}, {0, 1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(prefill)
    ->ArgsProduct({{16, 32, 64}, {1}, {0, 1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(decode_partials)
    ->ArgsProduct({{16, 32, 64}, {1, 2}, {0, 1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(prefill_partials)
    ->ArgsProduct({{16, 32, 64}, {1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(decode_in_cache)
    ->ArgsProduct({{16, 32, 64}, {0, 1, 2}, {0, 10}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();
BENCHMARK(decode_sparse)
    ->ArgsProduct({{1024, 4096, 16384}, {1, 2}, {0, 1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(store)->ArgsProduct({{1, 2}, {0, 1, 2}})->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace stagecoach::bench
