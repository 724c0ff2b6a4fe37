// Attention of decoded tokens, which reads the whole KV cache once, beside a loop that only reads
// it; of prompt pieces; and the partial results of every page instead.
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

  [[nodiscard]] std::int64_t pages() const { return (context + page_tokens - 1) / page_tokens; }
  [[nodiscard]] std::int64_t page_elements() const { return 2 * kHeads * page_tokens * kHeadDim; }
  [[nodiscard]] std::int64_t partial_elements() const {
    return device::attention_partial_floats(rows, kHeads, kHeadDim);
  }
};

/// The matrices of one operation and its arguments.
class Batch {
 public:
  explicit Batch(const Shape& shape)
      : cache_(shape.sequences * shape.pages() * shape.page_elements()),
        partials_(shape.sequences * shape.pages() * shape.partial_elements()),
        query_(shape.sequences * shape.rows * kHeads * kHeadDim),
        out_(shape.sequences * shape.rows * kHeads * kHeadDim) {
    args_.query = args_.key = args_.value = query_.data();
    args_.row_stride = kHeads * kHeadDim;
    args_.out = out_.data();
    args_.heads = args_.kv_heads = kHeads;
    args_.head_dim = kHeadDim;
    args_.page_tokens = shape.page_tokens;
    args_.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
    for (std::int64_t s = 0; s < shape.sequences; ++s) {
      args_.sequences.push_back(sequence(shape, s));
    }
  }

  [[nodiscard]] const device::AttentionArgs& args() const { return args_; }
  [[nodiscard]] std::span<const std::byte> cache() const { return cache_.bytes(); }

 private:
  [[nodiscard]] device::SequenceRows sequence(const Shape& shape, std::int64_t index) const {
    device::SequenceRows sequence;
    sequence.first_row = static_cast<std::int32_t>(index * shape.rows);
    sequence.num_rows = static_cast<std::int32_t>(shape.rows);
    sequence.first_position = static_cast<std::int32_t>(shape.context - shape.rows);
    for (std::int64_t p = 0; p < shape.pages(); ++p) {
      const std::int64_t page = index * shape.pages() + p;
      sequence.pages.push_back(
          reinterpret_cast<std::byte*>(cache_.data() + page * shape.page_elements()));
      sequence.partials.push_back(partials_.data() + page * shape.partial_elements());
    }
    return sequence;
  }

  Numbers<Half> cache_;
  Numbers<float> partials_;
  Numbers<float> query_;
  Numbers<float> out_;
  device::AttentionArgs args_;
};

using Operation = void (device::Device::*)(device::Stream&, device::AttentionArgs);

void measure(benchmark::State& state, Operation operation, const Shape& shape, int threads) {
  const DeviceFixture fixture("auto", threads);
  device::ThreadPool readers(threads);
  const Batch batch(shape);
  Median ours;
  Median reading;
  for (auto _ : state) {
    ours.add(seconds_of([&] {
      (fixture.device.get()->*operation)(*fixture.stream, batch.args());
      fixture.finish();
    }));
    reading.add(seconds_of([&] { benchmark::DoNotOptimize(read_all(batch.cache(), readers)); }));
  }
  const auto bytes = static_cast<double>(batch.cache().size());
  state.counters["GB/s"] = bytes / ours.value() * 1e-9;
  state.counters["reading"] = bytes / reading.value() * 1e-9;
  state.counters["to_reading"] = reading.value() / ours.value();
  state.counters["GFLOP/s"] =
      4.0 * static_cast<double>(shape.sequences * shape.rows * kHeads * kHeadDim * shape.context) /
      ours.value() * 1e-9;
}

void decode(benchmark::State& state) {
  measure(state, &device::Device::attention, {16, 1, 1024, state.range(0)}, 1);
}
void prefill(benchmark::State& state) {
  measure(state, &device::Device::attention, {1, 256, 1024, state.range(0)}, 1);
}
// Arguments: tokens of a page, threads.
void decode_partials(benchmark::State& state) {
  measure(state, &device::Device::attention_partials, {16, 1, 1024, state.range(0)},
          static_cast<int>(state.range(1)));
}
void prefill_partials(benchmark::State& state) {
  measure(state, &device::Device::attention_partials, {1, 256, 1024, state.range(0)},
          static_cast<int>(state.range(1)));
}

BENCHMARK(decode)->Arg(16)->Arg(32)->Arg(64)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(prefill)->Arg(16)->Arg(32)->Arg(64)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(decode_partials)
    ->ArgsProduct({{16, 32, 64}, {1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(prefill_partials)
    ->ArgsProduct({{16, 32, 64}, {1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace stagecoach::bench
