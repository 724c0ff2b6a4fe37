// Attention of decoded tokens, which reads the whole KV cache once, beside a loop that only reads
// it; and of prompt pieces.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>

#include "micro/device_fixture.hpp"

namespace stagecoach::bench {
namespace {

constexpr std::int64_t kHeads = 32;
constexpr std::int64_t kHeadDim = 128;

void attention(benchmark::State& state, std::int64_t sequences, std::int64_t rows,
               std::int64_t context) {
  const std::int64_t page_tokens = state.range(0);
  const std::int64_t pages = (context + page_tokens - 1) / page_tokens;
  const std::int64_t page_elements = 2 * kHeads * page_tokens * kHeadDim;
  DeviceFixture fixture("auto", 1);
  const Numbers<Half> cache(sequences * pages * page_elements);
  const Numbers<float> query(sequences * rows * kHeads * kHeadDim);
  const Numbers<float> out(sequences * rows * kHeads * kHeadDim);
  device::AttentionArgs args;
  args.query = args.key = args.value = query.data();
  args.row_stride = kHeads * kHeadDim;
  args.out = out.data();
  args.heads = args.kv_heads = kHeads;
  args.head_dim = kHeadDim;
  args.page_tokens = page_tokens;
  args.scale = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
  for (std::int64_t s = 0; s < sequences; ++s) {
    device::SequenceRows sequence;
    sequence.first_row = static_cast<std::int32_t>(s * rows);
    sequence.num_rows = static_cast<std::int32_t>(rows);
    sequence.first_position = static_cast<std::int32_t>(context - rows);
    for (std::int64_t p = 0; p < pages; ++p) {
      sequence.pages.push_back(
          reinterpret_cast<std::byte*>(cache.data() + (s * pages + p) * page_elements));
    }
    args.sequences.push_back(sequence);
  }
  Median ours;
  Median reading;
  for (auto _ : state) {
    ours.add(seconds_of([&] {
      fixture.device->attention(*fixture.stream, args);
      fixture.finish();
    }));
    reading.add(seconds_of([&] { benchmark::DoNotOptimize(read_all(cache.bytes())); }));
  }
  const auto bytes = static_cast<double>(cache.bytes().size());
  state.counters["GB/s"] = bytes / ours.value() * 1e-9;
  state.counters["reading"] = bytes / reading.value() * 1e-9;
  state.counters["to_reading"] = reading.value() / ours.value();
  state.counters["GFLOP/s"] = 4.0 *
                              static_cast<double>(sequences * rows * kHeads * kHeadDim * context) /
                              ours.value() * 1e-9;
}

void decode(benchmark::State& state) { attention(state, 16, 1, 1024); }
void prefill(benchmark::State& state) { attention(state, 1, 256, 1024); }

BENCHMARK(decode)->Arg(16)->Arg(32)->Arg(64)->Unit(benchmark::kMillisecond);
BENCHMARK(prefill)->Arg(16)->Arg(32)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stagecoach::bench
