#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "plan/measure_cases.hpp"

namespace stagecoach::plan {
namespace {

// Elements of one matrix of activations: 64 MiB.
constexpr std::int64_t kMostActivations = std::int64_t{16} << 20;
// A product on a CPU that takes longer is cut: its rate does not depend on the outputs.
constexpr double kFlopsOfAThread = 4e9;
constexpr std::int64_t kLeastOutputs = 128;  // for each thread
constexpr std::size_t kWidenedBytes = std::size_t{32} << 20;

constexpr Packing kPackings[] = {Packing::none, Packing::int8, Packing::int4};

std::string name_of(Packing packing) { return describe(PackFormat{packing, 64}); }

std::size_t aligned(std::size_t bytes) { return round_up(bytes, kPageBytes); }

/// Matrices that are gone through in turns.
struct Matrices {
  Matrices(const MeasureKit& kit, const PackFormat& format, std::int64_t width, std::int64_t rows)
      : weight(kit.data(), format), inputs(width), outputs(outputs_of(kit, width, rows)) {
    bytes = aligned(static_cast<std::size_t>(outputs * weight.row_bytes(inputs)));
    count = std::max<std::int64_t>(static_cast<std::int64_t>(kit.data_bytes() / bytes), 1);
  }

  [[nodiscard]] device::Weights at(std::int64_t piece) const {
    return {weight.data + static_cast<std::size_t>(piece % count) * bytes, weight.format};
  }

  device::Weights weight;
  std::int64_t inputs;
  std::int64_t outputs;
  std::size_t bytes = 0;
  std::int64_t count = 0;

 private:
  [[nodiscard]] std::int64_t outputs_of(const MeasureKit& kit, std::int64_t width,
                                        std::int64_t rows) const {
    const auto row_bytes = weight.row_bytes(width);
    // Less a page, which rounding up may take.
    auto most = (static_cast<std::int64_t>(kit.data_bytes() - kPageBytes)) / row_bytes;
    if (!kit.options().gpu) {
      const double flops = kFlopsOfAThread * kit.options().threads;
      most = std::min(
          most,
          std::max(static_cast<std::int64_t>(flops / (2.0 * static_cast<double>(rows * width))),
                   kLeastOutputs * kit.options().threads));
    }
    return std::clamp<std::int64_t>(most, 1, width);
  }
};

double product_rate(const MeasureKit& kit, const PackFormat& format, std::int64_t width,
                    std::int64_t rows) {
  const Matrices matrices(kit, format, width, rows);
  float* const x = kit.work();
  float* const out = x + rows * width;
  return kit.rate_of(fmt::format("products {} {}", name_of(format.packing), width),
                     2.0 * static_cast<double>(rows * width * matrices.outputs),
                     MeasureKit::on(kit.compute(), [&, x, out, rows](std::int64_t piece) {
                       kit.device().linear(kit.compute(), {.x = x,
                                                           .weight = matrices.at(piece),
                                                           .out = out,
                                                           .rows = rows,
                                                           .in_features = matrices.inputs,
                                                           .out_features = matrices.outputs,
                                                           .out_stride = matrices.outputs});
                     }));
}

Curve product_curve(const MeasureKit& kit, const PackFormat& format, std::int64_t width) {
  std::vector<Curve::Point> points;
  std::string text;
  for (const auto rows : kit.sizes().rows) {
    if (rows > most_product_rows(kit.sizes(), width)) {
      break;
    }
    points.push_back({static_cast<double>(rows), product_rate(kit, format, width, rows)});
    text += fmt::format("{}{}: {:.1f}", text.empty() ? "" : ", ", rows, points.back().rate * 1e-9);
  }
  kit.tell(fmt::format("products, {}, width {}: GFLOP/s by rows {}", name_of(format.packing), width,
                       text));
  return Curve(std::move(points));
}

/// From the first half of the data into the second.
double widening_rate(MeasureKit& kit, const PackFormat& format) {
  const auto width = *std::max_element(kit.sizes().widths.begin(), kit.sizes().widths.end());
  const auto half = kit.data_bytes() / 2;
  const auto wide_row = static_cast<std::size_t>(2 * width);
  const auto rows = std::max<std::size_t>(std::min(kWidenedBytes, half) / wide_row, 1);
  const auto wide_bytes = aligned(rows * wide_row);
  const device::Weights first(kit.data(), format);
  const auto packed_bytes = aligned(rows * static_cast<std::size_t>(first.row_bytes(width)));
  const auto sources = std::max<std::size_t>(half / packed_bytes, 1);
  const auto targets = std::max<std::size_t>((kit.data_bytes() - half) / wide_bytes, 1);
  const auto rate = kit.rate_of(
      fmt::format("widening {}", name_of(format.packing)), static_cast<double>(rows * wide_row),
      MeasureKit::on(kit.compute(), [&](std::int64_t piece) {
        const auto i = static_cast<std::size_t>(piece);
        kit.device().widen(
            kit.compute(),
            {.weight = {kit.data() + i % sources * packed_bytes, format},
             .out = reinterpret_cast<Half*>(kit.data() + half + i % targets * wide_bytes),
             .rows = static_cast<std::int64_t>(rows),
             .columns = width});
      }));
  kit.fill_data();  // what packed rows mean is larger than what others had better begin with
  kit.tell(fmt::format("widening {}: {:.1f} GB/s of f16", name_of(format.packing), rate * 1e-9));
  return rate;
}

}  // namespace

std::int64_t most_product_rows(const MeasureSizes& sizes, std::int64_t width) {
  const auto largest = *std::max_element(sizes.rows.begin(), sizes.rows.end());
  return std::clamp<std::int64_t>(kMostActivations / width, sizes.rows.front(), largest);
}

void measure_products(MeasureKit& kit, NodeProfile& profile) {
  for (const auto packing : kPackings) {
    const PackFormat format{packing, 64};
    auto& rates = profile.formats[packing];
    for (const auto width : kit.sizes().widths) {
      rates.products[width] = product_curve(kit, format, width);
    }
    if (format.packed()) {
      rates.widen = widening_rate(kit, format);
    }
  }
}

}  // namespace stagecoach::plan
