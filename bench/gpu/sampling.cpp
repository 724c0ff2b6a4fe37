#include <fmt/format.h>

#include "gpu/cases.hpp"

namespace stagecoach::bench::gpu {
namespace {

void sample(Workbench& bench, const char* name, const device::SampleSpec& how, double aim) {
  const auto& sizes = bench.sizes();
  std::vector<device::SampleResult> results(static_cast<std::size_t>(sizes.sampled_rows));
  device::SampleArgs args{.logits = bench.floats(sizes.sampled_rows * sizes.vocab),
                          .vocab = sizes.vocab,
                          .specs = {results.size(), how},
                          .results = results};
  for (std::size_t i = 0; i < args.specs.size(); ++i) {
    args.specs[i].row = static_cast<std::int32_t>(i);
  }
  const double bytes = 4.0 * static_cast<double>(sizes.sampled_rows * sizes.vocab);
  bench.compare("sampling", fmt::format("{} of {} rows", name, sizes.sampled_rows), "GB/s",
                bench.work(bytes, [&] { bench.device().sample(bench.stream(), args); }), "copy",
                bench.copy(bytes), aim);
  bench.forget();
}

}  // namespace

void measure_sampling(Workbench& bench) {
  device::SampleSpec how;
  sample(bench, "greedy", how, kAim);
  how.temperature = 0.8;
  how.uniform = 0.5;
  how.top_k = 40;
  // These go through the logits several times.
  sample(bench, "top-k", how, 0);
  how.top_k = 0;
  how.top_p = 0.9;
  sample(bench, "top-p", how, 0);
}

}  // namespace stagecoach::bench::gpu
