// Copies between device and DRAM through a stream, in pieces as the engine copies pages and
// weights, beside memcpy of the same bytes.
#include <benchmark/benchmark.h>

#include <cstring>

#include "micro/device_fixture.hpp"

namespace stagecoach::bench {
namespace {

constexpr std::size_t kBytes = std::size_t{512} << 20;

void copy(benchmark::State& state) {
  const auto piece = static_cast<std::size_t>(state.range(0));
  DeviceFixture fixture("auto", 1);
  const AlignedMemory from(kBytes, "a benchmark");
  const auto to = fixture.device->allocate(kBytes, "a benchmark");
  Median ours;
  Median theirs;
  for (auto _ : state) {
    ours.add(seconds_of([&] {
      for (std::size_t at = 0; at < kBytes; at += piece) {
        fixture.device->copy_from_host(*fixture.stream, to.data() + at, from.data() + at, piece);
      }
      fixture.finish();
    }));
    theirs.add(seconds_of([&] {
      for (std::size_t at = 0; at < kBytes; at += piece) {
        std::memcpy(to.data() + at, from.data() + at, piece);
        benchmark::ClobberMemory();
      }
    }));
  }
  state.counters["GB/s"] = static_cast<double>(kBytes) / ours.value() * 1e-9;
  state.counters["memcpy"] = static_cast<double>(kBytes) / theirs.value() * 1e-9;
  state.counters["to_memcpy"] = theirs.value() / ours.value();
}

BENCHMARK(copy)->Arg(64 << 10)->Arg(1 << 20)->Arg(64 << 20)->UseRealTime()->Unit(
    benchmark::kMillisecond);

}  // namespace
}  // namespace stagecoach::bench
