#include "stage/batch_kv.hpp"

namespace stagecoach::stage {
namespace {

void place(PagePlace& page, bool cpu_attends, bool direct, BatchKv& batch) {
  const auto& use = page.use;
  if (use.tier == offload::Tier::device) {
    return;
  }
  if (use.passes()) {
    page.passing = batch.passing++;
  }
  batch.stores += use.has_new ? 1 : 0;
  batch.writes += use.fills ? 1 : 0;
  batch.reads += use.on_disk() ? 1 : 0;
  if (use.on_disk() && (cpu_attends || !direct)) {
    page.cpu_staged = batch.cpu_staged++;
  }
  if (cpu_attends) {
    page.partial = batch.partials++;
    ++batch.attended_by_cpu;
    return;
  }
  page.staged = batch.staged++;
  batch.loads += use.has_old && (!use.on_disk() || !direct) ? 1 : 0;
}

}  // namespace

BatchKv place_pages(const std::vector<std::vector<offload::PageUse>>& uses,
                    const std::vector<std::int64_t>& rows, bool cpu_attention, bool direct) {
  BatchKv batch;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    auto& sequence = batch.sequences.emplace_back();
    sequence.cpu_attends = cpu_attention && rows[i] == 1;
    for (const auto& use : uses[i]) {
      auto& page = sequence.pages.emplace_back();
      page.use = use;
      place(page, sequence.cpu_attends, direct, batch);
    }
  }
  return batch;
}

}  // namespace stagecoach::stage
