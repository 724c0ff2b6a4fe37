#include <fmt/format.h>

#include "gpu/cases.hpp"

namespace stagecoach::bench::gpu {
namespace {

void few_rows(Workbench& bench, const PackFormat& format, std::int64_t rows) {
  const auto& sizes = bench.sizes();
  const auto weights = weight_bytes(format, sizes.ffn, sizes.width);
  const device::LinearArgs args{
      .x = bench.floats(rows * sizes.width),
      .weight = {bench.packed_bytes(static_cast<std::int64_t>(weights)), format},
      .bias = bench.halves(sizes.ffn),
      .out = bench.floats(rows * sizes.ffn),
      .rows = rows,
      .in_features = sizes.width,
      .out_features = sizes.ffn,
      .out_stride = sizes.ffn,
      .epilogue = device::Epilogue::relu};
  const double bytes = weights + 4.0 * static_cast<double>(rows * (sizes.width + sizes.ffn)) +
                       2.0 * static_cast<double>(sizes.ffn);
  // f16 weights are cuBLAS's affair, and stand here for comparison.
  bench.compare("products",
                fmt::format("{} row{} {}x{} {}", rows, rows == 1 ? "" : "s", sizes.ffn, sizes.width,
                            format.packed() ? to_string(format.packing) : "f16"),
                "GB/s", bench.work(bytes, [&] { bench.device().linear(bench.stream(), args); }),
                "copy", bench.copy(bytes), format.packed() ? kAim : 0);
  bench.forget();
}

}  // namespace

void measure_products(Workbench& bench) {
  for (const auto packing : {Packing::int4, Packing::int8}) {
    for (std::int64_t rows = 1; rows <= bench.device().packed_product_rows(); ++rows) {
      few_rows(bench, {packing, 64}, rows);
    }
  }
  few_rows(bench, {}, 1);
  few_rows(bench, {}, 8);
}

}  // namespace stagecoach::bench::gpu
