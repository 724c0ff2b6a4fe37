// Products with f16 weights, beside what oneDNN does with f32 weights that it has repacked before,
// and beside a loop that only reads the weights. The three alternate, so that noise hits them
// alike. For a fair avx2 run set ONEDNN_MAX_CPU_ISA=AVX2.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>

#include "micro/device_fixture.hpp"

namespace stagecoach::bench {
namespace {

constexpr std::int64_t kFeatures = 4096;
constexpr std::int64_t kMaxRows = 512;

// oneDNN's f32 product with weights in the layout that it prefers.
class Prepacked {
 public:
  explicit Prepacked(std::int64_t rows, const float* x, float* out)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using dnnl::memory;
    const auto f32 = memory::data_type::f32;
    const memory::desc x_desc({rows, kFeatures}, f32, memory::format_tag::ab);
    const memory::desc w_desc({kFeatures, kFeatures}, f32, memory::format_tag::any);
    const memory::desc out_desc({rows, kFeatures}, f32, memory::format_tag::ab);
    const dnnl::matmul::primitive_desc desc({x_desc, w_desc, out_desc}, engine_);
    product_ = dnnl::matmul(desc);
    memory weights(desc.weights_desc(), engine_);
    auto* values = static_cast<float*>(weights.get_data_handle());
    std::fill_n(values, desc.weights_desc().get_size() / sizeof(float), 0.5f);
    arguments_ = {{DNNL_ARG_SRC, memory(x_desc, engine_, const_cast<float*>(x))},
                  {DNNL_ARG_WEIGHTS, weights},
                  {DNNL_ARG_DST, memory(out_desc, engine_, out)}};
  }

  void run() {
    product_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul product_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

void products(benchmark::State& state, const std::string& isa) {
  omp_set_num_threads(1);
  const std::int64_t rows = state.range(0);
  DeviceFixture fixture(isa, 1);
  const Numbers<float> x(kMaxRows * kFeatures);
  const Numbers<Half> weight(kFeatures * kFeatures);
  const Numbers<float> out(kMaxRows * kFeatures);
  const Numbers<float> reference_out(kMaxRows * kFeatures);
  Prepacked reference(rows, x.data(), reference_out.data());
  Median ours;
  Median onednn;
  Median reading;
  for (auto _ : state) {
    ours.add(seconds_of([&] {
      fixture.device->linear(*fixture.stream,
                             {x.data(), weight.data(), nullptr, out.data(), rows, kFeatures,
                              kFeatures, kFeatures, device::Epilogue::none});
      fixture.finish();
    }));
    onednn.add(seconds_of([&] { reference.run(); }));
    reading.add(seconds_of([&] { benchmark::DoNotOptimize(read_all(weight.bytes())); }));
  }
  const double flops = 2.0 * static_cast<double>(rows * kFeatures * kFeatures);
  state.counters["GFLOP/s"] = flops / ours.value() * 1e-9;
  state.counters["oneDNN"] = flops / onednn.value() * 1e-9;
  state.counters["to_oneDNN"] = onednn.value() / ours.value();
  state.counters["to_reading"] = reading.value() / ours.value();
}

void register_all() {
  for (const std::string isa : {"auto", "avx2"}) {
    auto* bench =
        benchmark::RegisterBenchmark(("linear_4096x4096/" + isa).c_str(),
                                     [isa](benchmark::State& state) { products(state, isa); });
    for (const int rows : {1, 2, 4, 6, 8, 12, 13, 16, 24, 32, 64, 128, 512}) {
      bench->Arg(rows);
    }
    bench->Unit(benchmark::kMillisecond)->MinTime(0.5);
  }
}

const bool kRegistered = (register_all(), true);

}  // namespace
}  // namespace stagecoach::bench
