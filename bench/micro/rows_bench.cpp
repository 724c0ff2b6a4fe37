// Operations on single rows: norms and sampling.
#include <benchmark/benchmark.h>

#include "micro/device_fixture.hpp"

namespace stagecoach::bench {
namespace {

void layer_norm(benchmark::State& state) {
  const std::int64_t width = state.range(0);
  constexpr std::int64_t kRows = 64;
  DeviceFixture fixture("auto", 1);
  const Numbers<float> x(kRows * width);
  const Numbers<float> out(kRows * width);
  const Numbers<Half> weight(width);
  for (auto _ : state) {
    state.SetIterationTime(seconds_of([&] {
      fixture.device->layer_norm(*fixture.stream, {x.data(), weight.data(), weight.data(),
                                                   out.data(), kRows, width, 1e-5f});
      fixture.finish();
    }));
  }
  state.SetBytesProcessed(state.iterations() * kRows * width * 8);
}
BENCHMARK(layer_norm)
    ->Arg(768)
    ->Arg(4096)
    ->Arg(12288)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

void sample(benchmark::State& state, const device::SampleSpec& spec) {
  constexpr std::int64_t kRows = 16;
  constexpr std::int64_t kVocab = 50272;
  DeviceFixture fixture("auto", 1);
  const Numbers<float> logits(kRows * kVocab);
  for (std::int64_t i = 0; i < kRows * kVocab; ++i) {
    logits.data()[i] *= 10;
  }
  std::vector<device::SampleResult> results(kRows);
  for (auto _ : state) {
    device::SampleArgs args;
    args.logits = logits.data();
    args.vocab = kVocab;
    args.specs.assign(kRows, spec);
    args.results = results;
    state.SetIterationTime(seconds_of([&] {
      fixture.device->sample(*fixture.stream, std::move(args));
      fixture.finish();
    }));
  }
  state.SetItemsProcessed(state.iterations() * kRows);
}
BENCHMARK_CAPTURE(sample, greedy, {})->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sample, greedy_logprobs, {0, -1, 0, 0, 1, 0, 5})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sample, top_k, {0, -1, 0.8, 50, 1, 0.7, -1})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sample, top_p, {0, -1, 0.8, 0, 0.9, 0.7, -1})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(sample, whole, {0, -1, 0.8, 0, 1, 0.7, -1})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stagecoach::bench
