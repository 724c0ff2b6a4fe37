#include <fmt/format.h>

#include <algorithm>

#include "base/hash.hpp"
#include "gpu/cases.hpp"

namespace stagecoach::bench::gpu {
namespace {

void layer_norm(Workbench& bench) {
  const auto& sizes = bench.sizes();
  const device::LayerNormArgs args{.x = bench.floats(sizes.rows * sizes.width),
                                   .weight = bench.halves(sizes.width),
                                   .bias = bench.halves(sizes.width),
                                   .out = bench.floats(sizes.rows * sizes.width),
                                   .rows = sizes.rows,
                                   .width = sizes.width};
  // Each number is read once and written once; a row's second pass should find it in a cache.
  const double bytes = 8.0 * static_cast<double>(sizes.rows * sizes.width);
  bench.compare("rows", fmt::format("layer norm {}x{}", sizes.rows, sizes.width), "GB/s",
                bench.work(bytes, [&] { bench.device().layer_norm(bench.stream(), args); }), "copy",
                bench.copy(bytes), kAim);
  bench.forget();
}

void embed(Workbench& bench, const PackFormat& format) {
  const auto& sizes = bench.sizes();
  device::EmbedArgs args;
  for (std::int64_t i = 0; i < sizes.rows; ++i) {
    const auto mixed = mix_bits(static_cast<std::uint64_t>(i));
    args.tokens.push_back(
        static_cast<std::int32_t>(mixed % static_cast<std::uint64_t>(sizes.vocab)));
    args.positions.push_back(static_cast<std::int32_t>(i % sizes.positions));
  }
  const auto table_bytes = weight_bytes(format, sizes.vocab, sizes.width);
  args.token_table = {bench.packed_bytes(static_cast<std::int64_t>(table_bytes)), format};
  args.position_table = bench.halves(sizes.positions * sizes.width);
  args.out = bench.floats(sizes.rows * sizes.width);
  args.width = sizes.width;
  // Positions come again and again, and are counted once.
  const double bytes = weight_bytes(format, sizes.rows, sizes.width) +
                       4.0 * static_cast<double>(sizes.rows * sizes.width) +
                       2.0 * static_cast<double>(sizes.positions * sizes.width);
  bench.compare("rows",
                fmt::format("embed {}x{} {}", sizes.rows, sizes.width,
                            format.packed() ? to_string(format.packing) : "f16"),
                "GB/s", bench.work(bytes, [&] { bench.device().embed(bench.stream(), args); }),
                "copy", bench.copy(bytes), kAim);
  bench.forget();
}

void widen(Workbench& bench, const PackFormat& format) {
  const auto& sizes = bench.sizes();
  const auto packed = weight_bytes(format, sizes.ffn, sizes.width);
  const device::WidenArgs args{
      .weight = {bench.packed_bytes(static_cast<std::int64_t>(packed)), format},
      .out = bench.halves(sizes.ffn * sizes.width),
      .rows = sizes.ffn,
      .columns = sizes.width};
  const double bytes = packed + 2.0 * static_cast<double>(sizes.ffn * sizes.width);
  bench.compare("rows",
                fmt::format("widen {}x{} {}", sizes.ffn, sizes.width, to_string(format.packing)),
                "GB/s", bench.work(bytes, [&] { bench.device().widen(bench.stream(), args); }),
                "copy", bench.copy(bytes), kAim);
  bench.forget();
}

}  // namespace

double weight_bytes(const PackFormat& format, std::int64_t rows, std::int64_t columns) {
  const device::Weights weights{nullptr, format};
  return static_cast<double>(rows * weights.row_bytes(columns));
}

void measure_rows(Workbench& bench) {
  layer_norm(bench);
  embed(bench, {});
  embed(bench, {Packing::int4, 64});
  widen(bench, {Packing::int8, 64});
  widen(bench, {Packing::int4, 64});
}

}  // namespace stagecoach::bench::gpu
