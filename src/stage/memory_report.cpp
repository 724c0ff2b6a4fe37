#include "stage/memory_report.hpp"

#include <algorithm>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "stage/decoder_layer.hpp"

namespace stagecoach::stage {

std::size_t MemoryReport::total_bytes() const {
  std::size_t total = 0;
  for (const auto& line : lines) {
    total += line.size_bytes;
  }
  return total;
}

std::size_t kv_page_bytes(const StageShape& shape) {
  return static_cast<std::size_t>(2 * shape.batch.page_tokens * shape.spec.kv_heads *
                                  shape.spec.head_dim) *
         device::kv_element_bytes(shape.batch.kv_type);
}

std::int64_t head_chunk_rows(const StageShape& shape) {
  return std::min<std::int64_t>(shape.batch.max_batch_rows(), 64);
}

std::size_t workspace_bytes(const StageShape& shape) {
  const auto layer = LayerWorkspace::size_floats(shape.spec, shape.batch.max_batch_rows());
  const auto head = head_chunk_rows(shape) * (2 * shape.spec.hidden + shape.spec.vocab);
  return sizeof(float) * static_cast<std::size_t>(shape.last() ? std::max(layer, head) : layer);
}

std::size_t hidden_buffer_bytes(const StageShape& shape) {
  return round_up(
      sizeof(float) * static_cast<std::size_t>(shape.batch.max_visit_rows() * shape.spec.hidden),
      kPageBytes);
}

MemoryReport plan_memory_with_pages(const StageShape& shape, std::int64_t kv_pages_per_layer,
                                    std::size_t budget_bytes, std::size_t device_scratch_bytes,
                                    std::size_t staging_bytes) {
  MemoryReport report;
  report.budget_bytes = budget_bytes;
  report.kv_pages_per_layer = kv_pages_per_layer;
  const auto pages = static_cast<std::size_t>(kv_pages_per_layer * shape.contents.layers);
  report.lines = {
      {"weights", offload::StageWeights::size_bytes(shape.spec, shape.contents)},
      {"KV cache", pages * kv_page_bytes(shape)},
      {"hidden states", static_cast<std::size_t>(kHiddenRing) * hidden_buffer_bytes(shape)},
      {"workspace", workspace_bytes(shape)},
      {"device scratch", device_scratch_bytes},
      {"staging while loading", staging_bytes}};
  return report;
}

MemoryReport plan_memory(const StageShape& shape, const KvDemand& demand, std::size_t budget_bytes,
                         std::size_t device_scratch_bytes, std::size_t staging_bytes) {
  const auto with_pages = [&](std::int64_t pages) {
    return plan_memory_with_pages(shape, pages, budget_bytes, device_scratch_bytes, staging_bytes);
  };
  const auto least = with_pages(demand.longest_pages);
  if (least.total_bytes() > budget_bytes) {
    throw OutOfMemory(fmt::format(
        "the job does not fit: {} of memory needed at least (weights {}, KV cache of the longest "
        "request {}, the rest {}), --device-mem allows {}; use more stages, a smaller "
        "--prefill-piece or --gpu-batch-size, or a larger --device-mem",
        format_bytes(least.total_bytes()), format_bytes(least.lines[0].size_bytes),
        format_bytes(least.lines[1].size_bytes),
        format_bytes(least.total_bytes() - least.lines[0].size_bytes - least.lines[1].size_bytes),
        format_bytes(budget_bytes)));
  }
  const auto page_row = std::max<std::size_t>(
      1, kv_page_bytes(shape) * static_cast<std::size_t>(shape.contents.layers));
  const auto spare = static_cast<std::int64_t>((budget_bytes - least.total_bytes()) / page_row);
  return with_pages(std::min(demand.wanted_pages, demand.longest_pages + spare));
}

std::string format_report(const MemoryReport& report) {
  std::string text;
  for (const auto& line : report.lines) {
    text += fmt::format("  {:<24}{:>12}\n", line.what, format_bytes(line.size_bytes));
  }
  text += fmt::format("  {:<24}{:>12} of {}\n", "total", format_bytes(report.total_bytes()),
                      format_bytes(report.budget_bytes));
  return text;
}

}  // namespace stagecoach::stage
