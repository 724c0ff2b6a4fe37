#include "stage/visit_builder.hpp"

#include <algorithm>
#include <utility>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "stage/decoder_layer.hpp"
#include "stage/memory_areas.hpp"

namespace stagecoach::stage {
namespace {

using offload::Tier;

constexpr std::int32_t kWhole = -1;

/// Positions that the rows of a batch attend to, summed over its rows.
std::int64_t attended_positions(const Visit& visit, const GpuBatch& batch) {
  std::int64_t sum = 0;
  for (auto i = batch.first_entry; i < batch.first_entry + batch.num_entries; ++i) {
    const auto& entry = visit.entries[static_cast<std::size_t>(i)];
    const auto rows = static_cast<std::int64_t>(entry.tokens.size());
    sum += rows * entry.first_position + rows * (rows + 1) / 2;
  }
  return sum;
}

/// Rows whose logits are needed.
std::int64_t head_rows(const Visit& visit, const GpuBatch& batch) {
  std::int64_t rows = 0;
  for (auto i = batch.first_entry; i < batch.first_entry + batch.num_entries; ++i) {
    rows += visit.entries[static_cast<std::size_t>(i)].head_rows();
  }
  return rows;
}

}  // namespace

double attention_in_flops(const model::ModelSpec& spec, std::int64_t rows) {
  return 2.0 * static_cast<double>(spec.hidden * qkv_width(spec)) * static_cast<double>(rows);
}

double attention_flops(const model::ModelSpec& spec, std::int64_t attended) {
  return 4.0 * static_cast<double>(spec.heads * spec.head_dim) * static_cast<double>(attended);
}

double attention_out_flops(const model::ModelSpec& spec, std::int64_t rows) {
  return 2.0 * static_cast<double>(spec.hidden * spec.heads * spec.head_dim) *
         static_cast<double>(rows);
}

double mlp_flops(const model::ModelSpec& spec, std::int64_t rows) {
  return 4.0 * static_cast<double>(spec.hidden * spec.ffn) * static_cast<double>(rows);
}

VisitBuilder::VisitBuilder(Scheduler& scheduler, const Visit& visit)
    : scheduler_(scheduler), plan_(scheduler.plan_), visit_(visit) {}

VisitSchedule VisitBuilder::build() {
  schedule_.ring = static_cast<std::int32_t>(scheduler_.visits_++ % kHiddenRing);
  schedule_.batches = cut_into_batches(visit_.entries, plan_.shape.batch.gpu_batch_size);
  schedule_.widens =
      plan_.weights.wide_bytes > 0 &&
      std::any_of(schedule_.batches.begin(), schedule_.batches.end(), [&](const auto& batch) {
        return batch.num_rows > plan_.weights.packed_product_rows;
      });
  take_pages();
  make_slots();
  start_visit();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (plan_.schedule == ScheduleKind::flexgen) {
      run_slot_as_flexgen(i);
    } else {
      run_slot(i);
    }
  }
  end_visit();
  scheduler_.units_computed_ +=
      plan_.shape.contents.layers * static_cast<std::int64_t>(plan_.weights.units.size());
  scheduler_.pages_.end_visit();
  return std::move(schedule_);
}

void VisitBuilder::take_pages() {
  scheduler_.release(visit_);
  for (const auto& batch : schedule_.batches) {
    std::vector<EntryPages> entries;
    for (auto i = batch.first_entry; i < batch.first_entry + batch.num_entries; ++i) {
      const auto& entry = visit_.entries[static_cast<std::size_t>(i)];
      const auto rows = static_cast<std::int64_t>(entry.tokens.size());
      entries.push_back({scheduler_.pages_.extend(scheduler_.place_of(visit_.block, entry.slot),
                                                  entry.first_position, rows),
                         rows, entry.sparse});
    }
    schedule_.kv.push_back(place_pages(entries, plan_.cpu_attention, plan_.direct));
  }
}

void VisitBuilder::make_slots() {
  const auto batches = static_cast<std::int32_t>(schedule_.batches.size());
  for (std::int32_t layer = 0; layer < plan_.shape.contents.layers; ++layer) {
    for (std::size_t unit = 0; unit < plan_.weights.units.size(); ++unit) {
      for (std::int32_t b = 0; b < batches; ++b) {
        Slot slot{.layer = layer, .unit = unit, .batch = b};
        slot.turn = static_cast<std::int32_t>(scheduler_.turns_++ % kTurns);
        slot.work = slot.turn;
        slot.first_of_unit = b == 0;
        if (!slots_.empty() && slots_.back().batch == b) {
          slots_.back().carried_out = slot.carried_in = true;
          slot.work = slots_.back().work;
        }
        slots_.push_back(slot);
      }
    }
  }
}

void VisitBuilder::start_visit() {
  const auto& shape = plan_.shape;
  if (!shape.last()) {
    add({.kind = StepKind::send_plan, .resource = Resource::send});
  }
  if (!shape.first()) {
    const auto kind = plan_.hidden.wire_in_cpu ? BufferKind::hidden_cpu : BufferKind::hidden_device;
    Step step{.kind = StepKind::receive_hidden,
              .resource = Resource::receive,
              .rows = visit_.rows(),
              .bytes = static_cast<std::int64_t>(hidden_bytes(shape, visit_.rows()))};
    touch_ring(step, kind);
    for (std::size_t b = 0; b < schedule_.batches.size(); ++b) {
      step.writes.push_back({kind, schedule_.ring, static_cast<std::int32_t>(b)});
    }
    add(std::move(step));
  }
}

void VisitBuilder::end_visit() {
  const auto& shape = plan_.shape;
  if (shape.last()) {
    add({.kind = StepKind::send_tokens,
         .resource = Resource::send,
         .rows = visit_.rows(),
         .reads = {{BufferKind::outcomes, schedule_.ring}}});
    return;
  }
  const auto kind = plan_.hidden.wire_in_cpu ? BufferKind::hidden_cpu : BufferKind::hidden_device;
  Step step{.kind = StepKind::send_hidden,
            .resource = Resource::send,
            .rows = visit_.rows(),
            .bytes = static_cast<std::int64_t>(hidden_bytes(shape, visit_.rows()))};
  touch_ring(step, kind);
  for (std::size_t b = 0; b < schedule_.batches.size(); ++b) {
    step.reads.push_back({kind, schedule_.ring, static_cast<std::int32_t>(b)});
  }
  add(std::move(step));
}

/// The next slot's loads go ahead of this slot's compute; so does, beside attention on the CPU, the
/// next slot's first part.
void VisitBuilder::run_slot(std::size_t index) {
  const auto& slot = slots_[index];
  const Slot* next = index + 1 < slots_.size() ? &slots_[index + 1] : nullptr;
  if (index == 0) {
    begin_unit(slot);
    load(slot);
    front(slot);
  }
  if (next != nullptr) {
    load(*next);
  }
  stream_weights(slot, static_cast<std::size_t>(slot.batch), schedule_.batches.size());
  const bool early = next != nullptr && may_start_early(slot, *next);
  if (early) {
    begin_unit(*next);
    front(*next);
  }
  back(slot);
  store_hidden(slot);
  if (next != nullptr && !early) {
    begin_unit(*next);
    front(*next);
  }
}

/// generation_loop_overlap_multi_batch of FlexGen: in each slot load_weight of the next phase (in
/// the first slot alone, since its first request loads all of it), load_cache and load_hidden of
/// the next batch, compute, store_cache and store_hidden of the last batch, and a synchronisation.
void VisitBuilder::run_slot_as_flexgen(std::size_t index) {
  const auto& slot = slots_[index];
  if (slot.first_of_unit) {
    begin_unit(slot);
    if (index == 0) {
      load(slot);
      scheduler_.dependencies_.fence();
    }
    stream_weights(slot, 0, 1);
  }
  const auto store_last = [&] {
    if (unstored_) {
      if (has_attention(*unstored_) && !kv(*unstored_).asks_cpu()) {
        store_rows(*unstored_);
      }
      store_hidden(*unstored_);
    }
  };
  store_last();
  if (index + 1 < slots_.size()) {
    load(slots_[index + 1]);
  }
  front(slot);
  back(slot);
  unstored_ = slot;
  scheduler_.dependencies_.fence();
  if (index + 1 == slots_.size()) {
    store_last();
    scheduler_.dependencies_.fence();
  }
}

void VisitBuilder::load(const Slot& slot) {
  load_hidden(slot);
  if (has_attention(slot)) {
    load_pages(slot);
  }
}

void VisitBuilder::load_hidden(const Slot& slot) {
  const auto source = hidden_source(slot);
  if (!source) {
    return;
  }
  const BufferRef staging{BufferKind::hidden_staging, slot.turn};
  if (*source == Tier::disk) {
    auto read = make(StepKind::read_hidden, Resource::disk_read, slot);
    read.bytes = static_cast<std::int64_t>(
        round_up(static_cast<std::size_t>(hidden_bytes_of(slot)), kPageBytes));
    touch_ring(read, BufferKind::hidden_disk);
    read.reads.push_back({BufferKind::hidden_disk, schedule_.ring, slot.batch});
    read.writes.push_back(staging);
    add(std::move(read));
  }
  auto step = make(StepKind::load_hidden, Resource::h2d, slot);
  step.tier = *source;
  step.bytes = hidden_bytes_of(slot);
  if (*source == Tier::disk) {
    step.reads.push_back(staging);
  } else {
    touch_ring(step, BufferKind::hidden_cpu);
    step.reads.push_back({BufferKind::hidden_cpu, schedule_.ring, slot.batch});
  }
  touch_hidden(step, slot, true);
  add(std::move(step));
}

void VisitBuilder::store_hidden(const Slot& slot) {
  const auto target = hidden_target(slot);
  if (target) {
    const BufferRef staging{BufferKind::hidden_staging, slot.turn};
    auto step = make(StepKind::store_hidden, Resource::d2h, slot);
    step.tier = *target;
    step.bytes = hidden_bytes_of(slot);
    touch_hidden(step, slot, false);
    if (*target == Tier::disk) {
      step.writes.push_back(staging);
    } else {
      touch_ring(step, BufferKind::hidden_cpu);
      step.writes.push_back({BufferKind::hidden_cpu, schedule_.ring, slot.batch});
    }
    add(std::move(step));
    if (*target == Tier::disk) {
      auto write = make(StepKind::write_hidden, Resource::disk_write, slot);
      write.bytes = static_cast<std::int64_t>(
          round_up(static_cast<std::size_t>(hidden_bytes_of(slot)), kPageBytes));
      write.reads.push_back(staging);
      touch_ring(write, BufferKind::hidden_disk);
      write.writes.push_back({BufferKind::hidden_disk, schedule_.ring, slot.batch});
      add(std::move(write));
    }
  }
}

void VisitBuilder::load_pages(const Slot& slot) {
  const auto& pages = kv(slot);
  const auto page_bytes = static_cast<std::int64_t>(plan_.kv.page_bytes);
  const auto on_disk = [](const PagePlace& page) { return page.use.on_disk(); };
  if (pages.reads > 0) {
    auto step = make(StepKind::read_kv, Resource::disk_read, slot);
    step.bytes = pages.reads * page_bytes;
    add_page_refs(step.reads, slot, BufferKind::kv_disk, on_disk);
    if (pages.cpu_staged > 0) {
      step.writes.push_back({BufferKind::kv_cpu_staging, slot.turn});
    }
    if (pages.cpu_staged < pages.reads) {
      step.writes.push_back({BufferKind::kv_staging, slot.turn, 1});
    }
    add(std::move(step));
  }
  if (pages.loads + pages.key_loads > 0) {
    auto step = make(StepKind::load_kv, Resource::h2d, slot);
    step.bytes =
        pages.loads * page_bytes + pages.key_loads * static_cast<std::int64_t>(plan_.kv.key_bytes);
    const auto loaded = [&](const PagePlace& page) { return page.loaded(plan_.direct); };
    add_page_refs(step.reads, slot, BufferKind::kv_cpu, loaded);
    add_page_refs(step.reads, slot, BufferKind::kv_open, loaded);
    if (pages.cpu_staged > 0) {
      step.reads.push_back({BufferKind::kv_cpu_staging, slot.turn});
    }
    step.writes.push_back({BufferKind::kv_staging, slot.turn, 0});
    add(std::move(step));
  }
}

void VisitBuilder::front(const Slot& slot) {
  if (first_of_stage(slot) && plan_.shape.first()) {
    auto step = make(StepKind::embed, Resource::compute, slot);
    touch_hidden(step, slot, true);
    add(std::move(step));
  }
  if (!has_attention(slot)) {
    return;
  }
  auto step = make(StepKind::attention_in, Resource::compute, slot);
  step.flops = attention_in_flops(plan_.shape.spec, step.rows);
  touch_hidden(step, slot, false);
  read_weight_buffers(step, slot);
  step.writes.push_back({BufferKind::workspace, slot.turn % plan_.workspaces});
  add(std::move(step));
  if (kv(slot).splits > 0) {
    score_pages(slot);
  }
  if (plan_.schedule != ScheduleKind::flexgen || kv(slot).asks_cpu()) {
    store_rows(slot);
  }
  if (kv(slot).asks_cpu()) {
    attend_on_cpu(slot);
  }
}

/// Scores of the pages that the device has. Selecting needs those of all pages, the newest tokens'
/// among them.
void VisitBuilder::score_pages(const Slot& slot) {
  auto score = make(StepKind::score_kv, Resource::compute, slot);
  score.reads.push_back({BufferKind::workspace, slot.turn % plan_.workspaces});
  if (kv(slot).staged > 0) {
    score.reads.push_back({BufferKind::kv_staging, slot.turn, 1});
    score.writes.push_back({BufferKind::kv_staging, slot.turn, 0});
  }
  score.writes.push_back({BufferKind::kv_device});
  score.writes.push_back({BufferKind::scores_device, slot.turn});
  add(std::move(score));
  auto save = make(StepKind::save_scores, Resource::d2h, slot);
  save.bytes = score_bytes(slot);
  save.reads.push_back({BufferKind::scores_device, slot.turn});
  save.writes.push_back({BufferKind::scores_cpu, slot.turn});
  add(std::move(save));
}

void VisitBuilder::store_rows(const Slot& slot) {
  const auto& pages = kv(slot);
  const auto page_bytes = static_cast<std::int64_t>(plan_.kv.page_bytes);
  const BufferRef rows{BufferKind::rows_cpu, slot.turn};
  const BufferRef passing{BufferKind::kv_passing, slot.turn};
  if (pages.stores + pages.attended_by_cpu == 0) {
    return;
  }
  auto save = make(StepKind::save_rows, Resource::d2h, slot);
  save.bytes = save.rows * qkv_width(plan_.shape.spec) * static_cast<std::int64_t>(sizeof(float));
  save.reads.push_back({BufferKind::workspace, slot.turn % plan_.workspaces});
  save.writes.push_back(rows);
  auto store = make(StepKind::store_kv, Resource::cpu_compute, slot);
  store.bytes = save.bytes;
  add(std::move(save));
  if (pages.stores == 0) {
    return;
  }
  store.reads.push_back(rows);
  const auto takes_new = [](const PagePlace& page) { return page.use.has_new; };
  add_page_refs(store.writes, slot, BufferKind::kv_cpu, takes_new);
  add_page_refs(store.writes, slot, BufferKind::kv_open, takes_new);
  if (pages.passing > 0) {
    store.writes.push_back(passing);
  }
  add(std::move(store));
  if (pages.writes > 0) {
    auto write = make(StepKind::write_kv, Resource::disk_write, slot);
    write.bytes = pages.writes * page_bytes;
    const auto fills = [](const PagePlace& page) { return page.use.fills; };
    add_page_refs(write.reads, slot, BufferKind::kv_open, fills);
    if (pages.passing > 0) {
      write.reads.push_back(passing);
    }
    add_page_refs(write.writes, slot, BufferKind::kv_disk, fills);
    add(std::move(write));
  }
}

void VisitBuilder::attend_on_cpu(const Slot& slot) {
  const auto& pages = kv(slot);
  auto step = make(StepKind::attend_cpu, Resource::cpu_compute, slot);
  step.bytes = pages.attended_by_cpu * static_cast<std::int64_t>(plan_.kv.page_bytes);
  step.flops =
      attention_flops(plan_.shape.spec, pages.attended_by_cpu * plan_.shape.batch.page_tokens);
  const auto attended = [](const PagePlace& page) { return page.partial >= 0 || page.keys_only; };
  if (pages.attended_by_cpu > 0) {
    step.reads.push_back({BufferKind::rows_cpu, slot.turn});
  }
  if (pages.splits > 0) {
    step.writes.push_back({BufferKind::scores_cpu, slot.turn});
  }
  add_page_refs(step.reads, slot, BufferKind::kv_cpu, attended);
  add_page_refs(step.reads, slot, BufferKind::kv_open, attended);
  if (pages.passing > 0) {
    step.reads.push_back({BufferKind::kv_passing, slot.turn});
  }
  if (pages.cpu_staged > 0) {
    step.reads.push_back({BufferKind::kv_cpu_staging, slot.turn});
  }
  step.writes.push_back({BufferKind::partials_cpu, slot.turn});
  add(std::move(step));
  auto load = make(StepKind::load_partials, Resource::h2d, slot);
  load.bytes = exchange_bytes(slot);
  load.reads.push_back({BufferKind::partials_cpu, slot.turn});
  load.writes.push_back({BufferKind::partials_device, slot.turn});
  add(std::move(load));
}

void VisitBuilder::back(const Slot& slot) {
  const auto& spec = plan_.shape.spec;
  const BufferRef workspace{BufferKind::workspace, slot.turn % plan_.workspaces};
  if (has_attention(slot)) {
    auto step = make(StepKind::attention, Resource::compute, slot);
    step.flops = attention_flops(spec, attended_positions(visit_, batch(slot)));
    if (kv(slot).staged > 0) {
      step.reads.push_back({BufferKind::kv_staging, slot.turn, 1});
      step.writes.push_back({BufferKind::kv_staging, slot.turn, 0});
    }
    if (kv(slot).asks_cpu()) {
      step.reads.push_back({BufferKind::partials_device, slot.turn});
    }
    if (kv(slot).splits > 0) {
      step.reads.push_back({BufferKind::scores_device, slot.turn});
    }
    step.writes.push_back({BufferKind::kv_device});
    step.writes.push_back(workspace);
    add(std::move(step));
    auto out = make(StepKind::attention_out, Resource::compute, slot);
    out.flops = attention_out_flops(spec, out.rows);
    read_weight_buffers(out, slot);
    out.reads.push_back(workspace);
    touch_hidden(out, slot, true);
    add(std::move(out));
  }
  if (has_mlp(slot)) {
    auto step = make(StepKind::mlp, Resource::compute, slot);
    step.flops = mlp_flops(spec, step.rows);
    read_weight_buffers(step, slot);
    step.writes.push_back(workspace);
    touch_hidden(step, slot, true);
    add(std::move(step));
  }
  if (last_of_stage(slot) && plan_.shape.last()) {
    head(slot);
  }
}

void VisitBuilder::head(const Slot& slot) {
  const auto& spec = plan_.shape.spec;
  auto step = make(StepKind::head, Resource::compute, slot);
  step.rows = head_rows(visit_, batch(slot));
  step.flops = 2.0 * static_cast<double>(step.rows * spec.hidden * spec.vocab);
  touch_hidden(step, slot, false);
  step.writes.push_back({BufferKind::workspace, slot.turn % plan_.workspaces});
  step.writes.push_back({BufferKind::outcomes, schedule_.ring});
  add(std::move(step));
}

/// Waiting for the next layer's weights early would hold back what frees a buffer for the layer
/// after it.
bool VisitBuilder::may_start_early(const Slot& slot, const Slot& next) const {
  return has_attention(slot) && kv(slot).asks_cpu() && next.batch != slot.batch &&
         (!next.first_of_unit || (plan_.weights.buffers == 0 && !schedule_.widens));
}

bool VisitBuilder::has_mlp(const Slot& slot) const {
  return slot.unit + 1 == plan_.weights.units.size();
}

bool VisitBuilder::first_of_stage(const Slot& slot) const {
  return slot.layer == 0 && slot.unit == 0;
}

bool VisitBuilder::last_of_stage(const Slot& slot) const {
  return slot.layer + 1 == plan_.shape.contents.layers && has_mlp(slot);
}

const GpuBatch& VisitBuilder::batch(const Slot& slot) const {
  return schedule_.batches[static_cast<std::size_t>(slot.batch)];
}

const BatchKv& VisitBuilder::kv(const Slot& slot) const {
  return schedule_.kv[static_cast<std::size_t>(slot.batch)];
}

Tier VisitBuilder::hidden_tier(const Slot& slot) const {
  return plan_.hidden.tiers.at(static_cast<std::size_t>(batch(slot).number));
}

std::optional<Tier> VisitBuilder::hidden_source(const Slot& slot) const {
  if (slot.carried_in || (first_of_stage(slot) && plan_.shape.first())) {
    return std::nullopt;
  }
  if (first_of_stage(slot)) {
    return plan_.hidden.wire_in_cpu ? std::optional(Tier::cpu) : std::nullopt;
  }
  const auto tier = hidden_tier(slot);
  return tier == Tier::device ? std::nullopt : std::optional(tier);
}

std::optional<Tier> VisitBuilder::hidden_target(const Slot& slot) const {
  if (slot.carried_out || (last_of_stage(slot) && plan_.shape.last())) {
    return std::nullopt;
  }
  if (last_of_stage(slot)) {
    return plan_.hidden.wire_in_cpu ? std::optional(Tier::cpu) : std::nullopt;
  }
  const auto tier = hidden_tier(slot);
  return tier == Tier::device ? std::nullopt : std::optional(tier);
}

BufferRef VisitBuilder::hidden_here(const Slot& slot) const {
  return hidden_tier(slot) == Tier::device
             ? BufferRef{BufferKind::hidden_device, schedule_.ring, slot.batch}
             : BufferRef{BufferKind::hidden_work, slot.work};
}

std::int64_t VisitBuilder::hidden_bytes_of(const Slot& slot) const {
  return static_cast<std::int64_t>(hidden_bytes(plan_.shape, batch(slot).num_rows));
}

void VisitBuilder::touch_ring(Step& step, BufferKind kind) {
  const BufferRef whole{kind, schedule_.ring, kWhole};
  if (std::find(rings_taken_.begin(), rings_taken_.end(), kind) == rings_taken_.end()) {
    rings_taken_.push_back(kind);
    step.writes.push_back(whole);
  } else {
    step.reads.push_back(whole);
  }
}

void VisitBuilder::touch_hidden(Step& step, const Slot& slot, bool writes) {
  const auto here = hidden_here(slot);
  if (here.kind == BufferKind::hidden_device) {
    touch_ring(step, here.kind);
  }
  (writes ? step.writes : step.reads).push_back(here);
}

void VisitBuilder::add_page_refs(std::vector<BufferRef>& refs, const Slot& slot, BufferKind kind,
                                 const std::function<bool(const PagePlace&)>& wanted) const {
  for (const auto& sequence : kv(slot).sequences) {
    for (const auto& page : sequence.pages) {
      const bool there = kind == BufferKind::kv_cpu ? page.use.tier == Tier::cpu
                         : kind == BufferKind::kv_disk
                             ? page.use.tier == Tier::disk
                             : page.use.tier == Tier::disk && page.use.open_slot >= 0;
      if (!there || !wanted(page)) {
        continue;
      }
      if (scheduler_.page_refs_ == PageRefs::by_batch) {
        const auto number = visit_.block * plan_.shape.batch.num_gpu_batches + batch(slot).number;
        refs.push_back({kind, static_cast<std::int32_t>(number), slot.layer});
        return;
      }
      const auto slot_number = kind == BufferKind::kv_open ? page.use.open_slot : page.use.slot;
      refs.push_back({kind, static_cast<std::int32_t>(slot_number), slot.layer});
    }
  }
}

std::int64_t VisitBuilder::score_bytes(const Slot& slot) const {
  const auto& batch = plan_.shape.batch;
  std::int64_t tokens = 0;
  for (const auto& sequence : kv(slot).sequences) {
    if (sequence.split >= 0) {
      tokens += static_cast<std::int64_t>(sequence.pages.size()) * batch.page_tokens;
    }
  }
  return tokens * plan_.shape.spec.heads * static_cast<std::int64_t>(sizeof(float));
}

/// Partial results, and what split sequences select.
std::int64_t VisitBuilder::exchange_bytes(const Slot& slot) const {
  const auto& pages = kv(slot);
  auto bytes = pages.partials * plan_.kv.partial_floats * static_cast<std::int64_t>(sizeof(float)) +
               pages.splits * static_cast<std::int64_t>(selection_bytes(plan_));
  for (std::size_t i = 0; i < pages.sequences.size(); ++i) {
    if (pages.sequences[i].split >= 0 && !pages.sequences[i].cpu_attends) {
      const auto entry = static_cast<std::size_t>(batch(slot).first_entry) + i;
      bytes += selected_value_bytes(plan_.shape, visit_.entries[entry].first_position);
    }
  }
  return bytes;
}

Step VisitBuilder::make(StepKind kind, Resource resource, const Slot& slot) const {
  Step step{.kind = kind,
            .resource = resource,
            .layer = slot.layer,
            .gpu_batch = slot.batch,
            .turn = slot.turn,
            .work = slot.work,
            .unit = static_cast<std::int32_t>(slot.unit),
            .rows = batch(slot).num_rows};
  if (plan_.weights.buffers > 0) {
    step.buffer = static_cast<std::int32_t>(unit_number(slot) % plan_.weights.buffers);
  }
  return step;
}

void VisitBuilder::add(Step step) {
  step.id = {visit_.number, static_cast<std::int32_t>(schedule_.steps.size())};
  scheduler_.dependencies_.add(step);
  schedule_.steps.push_back(std::move(step));
}

}  // namespace stagecoach::stage
