#include "stage/batch_kv.hpp"

#include <algorithm>

namespace stagecoach::stage {
namespace {

void place(PagePlace& page, const SequenceKv& sequence, bool direct, BatchKv& batch) {
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
  if (use.on_disk() && (sequence.cpu_attends || !direct)) {
    page.cpu_staged = batch.cpu_staged++;
  }
  if (sequence.cpu_attends) {
    page.partial = batch.partials++;
    ++batch.attended_by_cpu;
    return;
  }
  page.staged = batch.staged++;
  if (page.loaded(direct)) {
    page.keys_only = sequence.split >= 0;
    ++(page.keys_only ? batch.key_loads : batch.loads);
  }
}

}  // namespace

BatchKv place_pages(const std::vector<EntryPages>& entries, bool cpu_attention, bool direct) {
  BatchKv batch;
  for (const auto& entry : entries) {
    auto& sequence = batch.sequences.emplace_back();
    sequence.cpu_attends = cpu_attention && entry.rows == 1;
    const bool outside = std::any_of(entry.uses.begin(), entry.uses.end(), [](const auto& use) {
      return use.tier != offload::Tier::device;
    });
    if (entry.sparse && entry.rows == 1 && outside) {
      sequence.split = batch.splits++;
    }
    for (const auto& use : entry.uses) {
      auto& page = sequence.pages.emplace_back();
      page.use = use;
      place(page, sequence, direct, batch);
    }
  }
  return batch;
}

}  // namespace stagecoach::stage
