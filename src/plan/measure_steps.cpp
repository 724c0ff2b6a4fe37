#include <fmt/format.h>

#include <array>
#include <functional>

#include "plan/measure_cases.hpp"

namespace stagecoach::plan {
namespace {

/// Tiny steps that wait for one another, now on one stream and now on the other, as the engine's
/// do. The caller hands them over ahead of time.
double chained(const MeasureKit& kit, const std::string& what,
               const std::array<device::Stream*, 2>& streams,
               const std::function<void(device::Stream&)>& step) {
  device::Event last;
  const double mine =
      kit.seconds_of(what, {.enqueue =
                                [&](std::int64_t piece) {
                                  auto& stream = *streams.at(static_cast<std::size_t>(piece % 2));
                                  stream.wait(last);
                                  step(stream);
                                  last = stream.record();
                                },
                            .finish = [&] { last.wait(); }});
  return kit.mean_of_node(what, mine);
}

double compute_step(const MeasureKit& kit) {
  const auto width = kit.sizes().widths.front();
  const auto* const vectors = reinterpret_cast<const Half*>(kit.data());
  return chained(kit, "a step of compute", {&kit.compute(0), &kit.compute(1)},
                 [&](device::Stream& stream) {
                   kit.device().layer_norm(stream, {.x = kit.work(),
                                                    .weight = vectors,
                                                    .bias = vectors,
                                                    .out = kit.work() + width,
                                                    .rows = 1,
                                                    .width = width});
                 });
}

double copy_step(const MeasureKit& kit) {
  const auto pinned = kit.device().pin(kit.dram().first(kPageBytes));
  return chained(kit, "a copy's step", {&kit.copies(0), &kit.copies(1)},
                 [&](device::Stream& stream) {
                   kit.device().copy_from_host(stream, kit.data(), kit.dram().data(), 64);
                 });
}

double cpu_step(const MeasureKit& kit) {
  const auto& sizes = kit.sizes();
  auto* const row = reinterpret_cast<float*>(kit.dram().data());
  auto* const page = kit.dram().data() + kit.dram().size() / 2;
  const device::AttentionArgs args{
      .query = row,
      .key = row,
      .value = row + sizes.head_dim,
      .row_stride = 2 * sizes.head_dim,
      .heads = 1,
      .kv_heads = 1,
      .head_dim = sizes.head_dim,
      .page_tokens = sizes.page_tokens.front(),
      .sequences = {{.first_row = 0, .num_rows = 1, .first_position = 0, .pages = {page}}}};
  return chained(kit, "a step of the CPU", {&kit.cpu_stream(0), &kit.cpu_stream(1)},
                 [&](device::Stream& stream) { kit.cpu().store_kv(stream, args); });
}

/// Its wait for the disk is part of it.
double disk_step(const MeasureKit& kit) {
  constexpr std::uint64_t kStride = 1000003;  // see measure_disk
  const auto places = kit.file_bytes() / offload::kDiskAlignment;
  std::uint64_t piece = 0;
  return chained(kit, "a disk's step", {&kit.disk(0), &kit.disk(1)}, [&](device::Stream& stream) {
    static_cast<offload::DiskStream&>(stream).read(
        *kit.file(), piece++ * kStride % places * offload::kDiskAlignment,
        kit.dram().first(offload::kDiskAlignment), offload::kDiskAlignment);
  });
}

}  // namespace

void measure_steps(MeasureKit& kit, NodeProfile& profile) {
  auto& step = profile.step;
  step.compute = compute_step(kit);
  step.copy = copy_step(kit);
  step.cpu = cpu_step(kit);
  step.disk = kit.file() != nullptr ? disk_step(kit) : 0;
  kit.tell(
      fmt::format("a step costs {:.1f} us (compute), {:.1f} (copy), {:.1f} (CPU), {:.1f} "
                  "(disk)",
                  step.compute * 1e6, step.copy * 1e6, step.cpu * 1e6, step.disk * 1e6));
}

}  // namespace stagecoach::plan
