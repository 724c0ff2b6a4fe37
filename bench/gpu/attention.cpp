#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpu/cases.hpp"

namespace stagecoach::bench::gpu {
namespace {

using device::KvFormat;
using device::KvType;

const char* name_of(const KvFormat& format) {
  switch (format.type) {
    case KvType::f16:
      return "f16";
    case KvType::f32:
      return "f32";
    case KvType::int8:
      return "int8";
    case KvType::int4:
      return "int4";
  }
  return "";
}

void store(Workbench& bench, const KvFormat& format) {
  const auto& sizes = bench.sizes();
  const auto rows = sizes.prefill_rows;
  const auto sequences = sizes.prefill_sequences;
  const auto width = sizes.heads * sizes.head_dim;
  const Cache cache(bench, format, sizes.heads, sequences, rows);
  const auto args = cache.args(bench.floats(sequences * rows * 3 * width), bench.floats(1), rows);
  // K and V of every row are read in f32, and a page is written for as many tokens.
  const double bytes = 8.0 * static_cast<double>(sequences * rows * width) + cache.bytes();
  bench.compare("attention", fmt::format("store {} rows {}", sequences * rows, name_of(format)),
                "GB/s", bench.work(bytes, [&] { bench.device().store_kv(bench.stream(), args); }),
                "copy", bench.copy(bytes), kAim);
  bench.forget();
}

void decode(Workbench& bench, const KvFormat& format, std::int64_t tokens) {
  const auto& sizes = bench.sizes();
  const auto width = sizes.heads * sizes.head_dim;
  const Cache cache(bench, format, sizes.heads, sizes.sequences, tokens);
  const auto args = cache.args(bench.floats(sizes.sequences * 3 * width),
                               bench.floats(sizes.sequences * width), 1);
  const double bytes = cache.bytes() + 8.0 * static_cast<double>(sizes.sequences * width);
  bench.compare("attention",
                fmt::format("decode {} of {} tokens {}", sizes.sequences, tokens, name_of(format)),
                "GB/s", bench.work(bytes, [&] { bench.device().attention(bench.stream(), args); }),
                "copy", bench.copy(bytes), kAim);
  bench.forget();
}

/// Every page's partial result came from elsewhere; the device merges them.
void merge(Workbench& bench) {
  const auto& sizes = bench.sizes();
  const auto width = sizes.heads * sizes.head_dim;
  const Cache cache(bench, {}, sizes.heads, sizes.sequences, sizes.longest());
  auto args = cache.args(bench.floats(sizes.sequences * 3 * width),
                         bench.floats(sizes.sequences * width), 1);
  const auto each = device::attention_partial_floats(1, sizes.heads, sizes.head_dim);
  const auto pages = static_cast<std::int64_t>(args.sequences.front().pages.size());
  float* partial = bench.floats(sizes.sequences * pages * each);
  for (auto& sequence : args.sequences) {
    for (auto& page : sequence.pages) {
      page = nullptr;
      sequence.partials.push_back(partial);
      partial += each;
    }
  }
  const double bytes = 4.0 * static_cast<double>(sizes.sequences * (pages * each + width));
  bench.compare("attention", fmt::format("merge {} of {} pages", sizes.sequences, pages), "GB/s",
                bench.work(bytes, [&] { bench.device().attention(bench.stream(), args); }), "copy",
                bench.copy(bytes), kAim);
  bench.forget();
}

/// The last `rows` tokens of sequences of `tokens`.
void prefill(Workbench& bench, std::int64_t rows, std::int64_t tokens) {
  const auto& sizes = bench.sizes();
  const auto sequences = sizes.prefill_sequences;
  const auto width = sizes.heads * sizes.head_dim;
  const Cache cache(bench, {}, sizes.heads, sequences, tokens);
  const auto args = cache.args(bench.floats(sequences * rows * 3 * width),
                               bench.floats(sequences * rows * width), rows);
  // A row sees the positions up to its own: a product with K, and one with V.
  const auto seen = rows * (tokens - rows) + rows * (rows + 1) / 2;
  const double flops = 4.0 * static_cast<double>(sequences * seen * width);
  const Half* const square = bench.halves(sizes.gemm * sizes.gemm);
  bench.compare("attention", fmt::format("prefill {} x {} of {} tokens", sequences, rows, tokens),
                "TFLOP/s",
                bench.work(flops, [&] { bench.device().attention(bench.stream(), args); }),
                "cuBLAS GEMM", bench.gemms({{sizes.gemm, sizes.gemm, sizes.gemm}}, square), 0);
  bench.forget();
}

}  // namespace

void measure_attention(Workbench& bench) {
  const auto& sizes = bench.sizes();
  const KvFormat formats[] = {KvType::f16, {KvType::int8, 64}, {KvType::int4, 64}};
  for (const auto& format : formats) {
    store(bench, format);
  }
  for (const auto& format : formats) {
    for (const auto tokens : sizes.contexts) {
      decode(bench, format, tokens);
    }
  }
  merge(bench);
  prefill(bench, sizes.prefill_rows, sizes.prefill_rows);
  prefill(bench, sizes.prefill_rows, std::max(sizes.longest(), sizes.prefill_rows));
}

}  // namespace stagecoach::bench::gpu
