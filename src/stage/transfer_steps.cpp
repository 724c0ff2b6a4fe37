#include <span>

#include "base/aligned_memory.hpp"
#include "stage/decoder_layer.hpp"
#include "stage/step_context.hpp"

namespace stagecoach::stage::transfer_steps {
namespace {

using offload::Tier;

/// Where a byte of the layer's image lies in the buffer of streamed weights.
std::byte* in_buffer(const StepContext& context, const Step& step, std::size_t image_offset) {
  const auto origin = context.plan.weights.streamed(static_cast<std::size_t>(step.unit)).begin;
  return context.memory.weight_buffer(step.buffer) + (image_offset - origin);
}

std::size_t hidden_size(const StepContext& context, const Step& step) {
  return hidden_bytes(context.plan.shape, step.rows);
}

/// Calls `visit_page` for every page of the step's GPU batch.
template <typename VisitPage>
void for_pages(const VisitState& visit, const Step& step, VisitPage visit_page) {
  for (const auto& sequence : visit.kv(step).sequences) {
    for (const auto& page : sequence.pages) {
      visit_page(page);
    }
  }
}

/// Calls `visit_split` for every split sequence of the step's GPU batch.
template <typename VisitSplit>
void for_splits(const VisitState& visit, const Step& step, VisitSplit visit_split) {
  const auto first = static_cast<std::size_t>(visit.batch(step).first_entry);
  const auto& sequences = visit.kv(step).sequences;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].split >= 0) {
      visit_split(sequences[i], visit.visit->entries[first + i]);
    }
  }
}

template <typename T>
std::byte* as_bytes(T* items) {
  return reinterpret_cast<std::byte*>(items);
}

}  // namespace

void load_weights(const StepContext& context, const Step& step, const VisitState& /*visit*/) {
  context.device.copy_from_host(context.streams.of(step.resource),
                                in_buffer(context, step, step.range.begin),
                                context.weights.in_dram(step.layer, step.range), step.range.size());
}

void read_weights(const StepContext& context, const Step& step, const VisitState& /*visit*/) {
  auto& stream = context.streams.disk(Resource::disk_read);
  for (const auto& extent : context.weights.extents(step.layer, step.range)) {
    auto* const to = context.plan.direct ? in_buffer(context, step, extent.image_offset)
                                         : context.memory.weight_staging(step.staging) +
                                               (extent.image_offset - step.range.begin);
    stream.read(context.weights.file(), extent.file_offset, {to, extent.size_bytes},
                extent.least_bytes);
  }
}

void stage_weights(const StepContext& context, const Step& step, const VisitState& /*visit*/) {
  context.device.copy_from_host(context.streams.of(Resource::h2d),
                                in_buffer(context, step, step.range.begin),
                                context.memory.weight_staging(step.staging), step.range.size());
}

void load_hidden(const StepContext& context, const Step& step, const VisitState& visit) {
  const auto* const from =
      step.tier == Tier::disk
          ? context.memory.hidden_staging(step.turn)
          : context.memory.hidden_cpu(visit.schedule.ring, visit.batch(step).first_row);
  context.device.copy_from_host(context.streams.of(Resource::h2d), context.hidden(step, visit),
                                from, hidden_size(context, step));
}

void store_hidden(const StepContext& context, const Step& step, const VisitState& visit) {
  auto* const to = step.tier == Tier::disk ? context.memory.hidden_staging(step.turn)
                                           : context.memory.hidden_cpu(visit.schedule.ring,
                                                                       visit.batch(step).first_row);
  context.device.copy_to_host(context.streams.of(Resource::d2h), to, context.hidden(step, visit),
                              hidden_size(context, step));
}

void read_hidden(const StepContext& context, const Step& step, const VisitState& visit) {
  const auto size = round_up(hidden_size(context, step), kPageBytes);
  context.streams.disk(Resource::disk_read)
      .read(context.memory.spill()->file,
            context.memory.hidden_offset(visit.schedule.ring, visit.batch(step).number),
            {context.memory.hidden_staging(step.turn), size}, size);
}

void write_hidden(const StepContext& context, const Step& step, const VisitState& visit) {
  const auto size = round_up(hidden_size(context, step), kPageBytes);
  context.streams.disk(Resource::disk_write)
      .write(context.memory.spill()->file,
             context.memory.hidden_offset(visit.schedule.ring, visit.batch(step).number),
             {context.memory.hidden_staging(step.turn), size});
}

void read_kv(const StepContext& context, const Step& step, const VisitState& visit) {
  auto& stream = context.streams.disk(Resource::disk_read);
  const auto size = context.plan.kv.page_bytes;
  for_pages(visit, step, [&](const PagePlace& page) {
    if (page.use.on_disk()) {
      auto* const to = page.cpu_staged >= 0
                           ? context.memory.kv_cpu_staging(step.turn, page.cpu_staged)
                           : context.memory.kv_staging(step.turn, page.staged);
      stream.read(context.memory.spill()->file, context.memory.kv_offset(step.layer, page.use.slot),
                  {to, size}, size);
    }
  });
}

void load_kv(const StepContext& context, const Step& step, const VisitState& visit) {
  auto& stream = context.streams.of(Resource::h2d);
  for_pages(visit, step, [&](const PagePlace& page) {
    if (page.loaded(context.plan.direct)) {
      const auto& kv = context.plan.kv;
      context.device.copy_from_host(stream, context.memory.kv_staging(step.turn, page.staged),
                                    context.page_in_dram(page, step),
                                    page.keys_only ? kv.key_bytes : kv.page_bytes);
    }
  });
}

void write_kv(const StepContext& context, const Step& step, const VisitState& visit) {
  auto& stream = context.streams.disk(Resource::disk_write);
  for_pages(visit, step, [&](const PagePlace& page) {
    if (page.use.fills) {
      stream.write(context.memory.spill()->file,
                   context.memory.kv_offset(step.layer, page.use.slot),
                   {context.page_in_dram(page, step), context.plan.kv.page_bytes});
    }
  });
}

void save_rows(const StepContext& context, const Step& step, const VisitState& /*visit*/) {
  const auto& shape = context.plan.shape;
  const LayerWorkspace workspace(shape.spec, shape.batch.max_batch_rows(),
                                 context.memory.workspace(step.turn));
  context.device.copy_to_host(context.streams.of(Resource::d2h),
                              reinterpret_cast<std::byte*>(context.memory.rows_cpu(step.turn)),
                              reinterpret_cast<const std::byte*>(workspace.qkv),
                              static_cast<std::size_t>(step.bytes));
}

void save_scores(const StepContext& context, const Step& step, const VisitState& visit) {
  auto& stream = context.streams.of(Resource::d2h);
  const auto& shape = context.plan.shape;
  for_splits(visit, step, [&](const SequenceKv& sequence, const VisitEntry&) {
    const auto tokens = static_cast<std::int64_t>(sequence.pages.size()) * shape.batch.page_tokens;
    context.device.copy_to_host(
        stream, as_bytes(context.memory.scores_cpu(step.turn, sequence.split)),
        as_bytes(context.memory.scores_device(step.turn, sequence.split)),
        sizeof(float) * static_cast<std::size_t>(shape.spec.heads * tokens));
  });
}

void load_partials(const StepContext& context, const Step& step, const VisitState& visit) {
  auto& stream = context.streams.of(Resource::h2d);
  const auto& memory = context.memory;
  const auto& plan = context.plan;
  const auto& kv = visit.kv(step);
  if (kv.partials > 0) {
    context.device.copy_from_host(
        stream, as_bytes(memory.partials_device(step.turn, 0)),
        as_bytes(memory.partials_cpu(step.turn, 0)),
        sizeof(float) * static_cast<std::size_t>(kv.partials * plan.kv.partial_floats));
  }
  if (kv.splits > 0) {
    context.device.copy_from_host(stream, as_bytes(memory.selection_device(step.turn, 0)),
                                  as_bytes(memory.selection_cpu(step.turn, 0)),
                                  static_cast<std::size_t>(kv.splits) * selection_bytes(plan));
  }
  for_splits(visit, step, [&](const SequenceKv& sequence, const VisitEntry& entry) {
    if (!sequence.cpu_attends) {
      context.device.copy_from_host(
          stream, memory.values_device(step.turn, sequence.split),
          memory.values_cpu(step.turn, sequence.split),
          static_cast<std::size_t>(selected_value_bytes(plan.shape, entry.first_position)));
    }
  });
}

}  // namespace stagecoach::stage::transfer_steps
