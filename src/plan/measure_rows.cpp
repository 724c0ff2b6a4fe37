#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "plan/measure_cases.hpp"

namespace stagecoach::plan {
namespace {

// Rows are as wide as a model's: wider ones are those between the two products of a layer.
constexpr std::int64_t kWidestNorm = 8192;

std::int64_t norm_width(const MeasureSizes& sizes) {
  std::int64_t width = sizes.widths.front();
  for (const auto candidate : sizes.widths) {
    width = candidate <= kWidestNorm ? std::max(width, candidate) : width;
  }
  return width;
}

double norm_rate(const MeasureKit& kit) {
  const auto width = norm_width(kit.sizes());
  const auto rows = kit.sizes().norm_rows;
  float* const x = kit.work();
  const auto* const vectors = reinterpret_cast<const Half*>(kit.data());
  return kit.rate_of("norms", 2.0 * sizeof(float) * static_cast<double>(rows * width),
                     MeasureKit::on(kit.compute(), [&, x, vectors](std::int64_t /*piece*/) {
                       kit.device().layer_norm(kit.compute(), {.x = x,
                                                               .weight = vectors,
                                                               .bias = vectors + width,
                                                               .out = x + rows * width,
                                                               .rows = rows,
                                                               .width = width});
                     }));
}

double sampling_rate(const MeasureKit& kit) {
  const auto rows = kit.sizes().sampled_rows;
  device::SampleArgs args{.logits = kit.work(), .vocab = kit.sizes().vocab};
  for (std::int64_t row = 0; row < rows; ++row) {
    args.specs.push_back({.row = static_cast<std::int32_t>(row)});
  }
  std::vector<device::SampleResult> results(args.specs.size());
  args.results = results;
  return kit.rate_of("sampling", static_cast<double>(rows * kit.sizes().vocab),
                     MeasureKit::on(kit.compute(), [&](std::int64_t /*piece*/) {
                       kit.device().sample(kit.compute(), args);
                     }));
}

}  // namespace

std::size_t work_bytes(const MeasureSizes& sizes) {
  std::int64_t floats = sizes.sampled_rows * sizes.vocab;
  for (const auto width : sizes.widths) {  // what goes into a product, and what comes out
    floats = std::max(floats, 2 * most_product_rows(sizes, width) * width);
  }
  floats = std::max(floats, 2 * sizes.norm_rows * norm_width(sizes));
  const auto rows = std::max(sizes.sequences, sizes.prompt_rows);
  floats = std::max(floats, rows * (2 * sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim);
  return static_cast<std::size_t>(floats) * sizeof(float);
}

void measure_rows(MeasureKit& kit, NodeProfile& profile) {
  profile.row_bytes_per_second = norm_rate(kit);
  profile.sampled_logits_per_second = sampling_rate(kit);
  kit.tell(fmt::format("norms: {:.2f} GB/s of rows; sampling: {:.3g} logits/s",
                       profile.row_bytes_per_second * 1e-9, profile.sampled_logits_per_second));
}

}  // namespace stagecoach::plan
