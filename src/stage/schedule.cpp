#include "stage/schedule.hpp"

#include <algorithm>
#include <utility>

namespace stagecoach::stage {
namespace {

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
    const auto& entry = visit.entries[static_cast<std::size_t>(i)];
    rows += entry.prompt_logprobs ? static_cast<std::int64_t>(entry.tokens.size())
                                  : static_cast<std::int64_t>(entry.samples());
  }
  return rows;
}

}  // namespace

std::vector<GpuBatch> cut_into_batches(const std::vector<VisitEntry>& entries,
                                       std::int64_t gpu_batch_size) {
  std::vector<GpuBatch> batches;
  std::int64_t row = 0;
  std::int64_t last_batch = -1;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (const auto batch = entries[i].slot / gpu_batch_size; batch != last_batch) {
      batches.push_back({.first_entry = static_cast<std::int64_t>(i), .first_row = row});
      last_batch = batch;
    }
    const auto rows = static_cast<std::int64_t>(entries[i].tokens.size());
    batches.back().num_entries += 1;
    batches.back().num_rows += rows;
    row += rows;
  }
  return batches;
}

double layer_flops(const model::ModelSpec& spec, std::int64_t rows, std::int64_t attended) {
  const auto matrices = spec.hidden * spec.head_dim * (2 * spec.heads + 2 * spec.kv_heads) +
                        2 * spec.hidden * spec.ffn;
  return 2.0 * static_cast<double>(matrices) * static_cast<double>(rows) +
         4.0 * static_cast<double>(spec.heads * spec.head_dim) * static_cast<double>(attended);
}

VisitSchedule Scheduler::next(const Visit& visit) {
  VisitSchedule schedule;
  schedule.ring = static_cast<std::int32_t>(visits_++ % kHiddenRing);
  schedule.batches = cut_into_batches(visit.entries, shape_.batch.gpu_batch_size);
  const BufferRef hidden{BufferKind::hidden, schedule.ring};
  const BufferRef workspace{BufferKind::workspace, 0};
  const BufferRef kv{BufferKind::kv, visit.block};
  const BufferRef outcomes{BufferKind::outcomes, schedule.ring};
  const auto batches = static_cast<std::int32_t>(schedule.batches.size());
  const auto visit_rows = visit.rows();
  const auto hidden_bytes =
      visit_rows * shape_.spec.hidden * static_cast<std::int64_t>(sizeof(float));

  if (!shape_.last()) {
    add(schedule, visit, {.kind = StepKind::send_plan, .resource = Resource::send});
  }
  if (!shape_.first()) {
    add(schedule, visit,
        {.kind = StepKind::receive_hidden,
         .resource = Resource::receive,
         .rows = visit_rows,
         .bytes = hidden_bytes,
         .writes = {hidden}});
  }
  for (std::int32_t b = 0; shape_.first() && b < batches; ++b) {
    add(schedule, visit,
        {.kind = StepKind::embed,
         .resource = Resource::compute,
         .gpu_batch = b,
         .rows = schedule.batches[static_cast<std::size_t>(b)].num_rows,
         .writes = {hidden}});
  }
  for (std::int32_t layer = 0; layer < shape_.contents.layers; ++layer) {
    for (std::int32_t b = 0; b < batches; ++b) {
      const auto& batch = schedule.batches[static_cast<std::size_t>(b)];
      add(schedule, visit,
          {.kind = StepKind::layer,
           .resource = Resource::compute,
           .layer = layer,
           .gpu_batch = b,
           .rows = batch.num_rows,
           .flops = layer_flops(shape_.spec, batch.num_rows, attended_positions(visit, batch)),
           .reads = {hidden, kv},
           .writes = {hidden, kv, workspace}});
    }
  }
  if (!shape_.last()) {
    add(schedule, visit,
        {.kind = StepKind::send_hidden,
         .resource = Resource::send,
         .rows = visit_rows,
         .bytes = hidden_bytes,
         .reads = {hidden}});
    return schedule;
  }
  for (std::int32_t b = 0; b < batches; ++b) {
    const auto rows = head_rows(visit, schedule.batches[static_cast<std::size_t>(b)]);
    add(schedule, visit,
        {.kind = StepKind::head,
         .resource = Resource::compute,
         .gpu_batch = b,
         .rows = rows,
         .flops = 2.0 * static_cast<double>(rows * shape_.spec.hidden * shape_.spec.vocab),
         .reads = {hidden},
         .writes = {workspace, outcomes}});
  }
  add(schedule, visit,
      {.kind = StepKind::send_tokens,
       .resource = Resource::send,
       .rows = visit_rows,
       .reads = {outcomes}});
  return schedule;
}

void Scheduler::add(VisitSchedule& schedule, const Visit& visit, Step step) {
  step.id = {visit.number, static_cast<std::int32_t>(schedule.steps.size())};
  add_waits(step);
  schedule.steps.push_back(std::move(step));
}

/// Read after write, write after write and write after read, against steps of other resources.
void Scheduler::add_waits(Step& step) {
  std::map<Resource, StepId> latest;
  const auto wait_for = [&](Resource resource, StepId id) {
    if (resource != step.resource) {
      auto& known = latest[resource];
      known = std::max(known, id);
    }
  };
  for (const auto& buffer : step.reads) {
    auto& use = uses_[buffer];
    if (use.writer) {
      wait_for(use.writer_resource, *use.writer);
    }
    use.readers[step.resource] = step.id;
  }
  for (const auto& buffer : step.writes) {
    auto& use = uses_[buffer];
    if (use.writer) {
      wait_for(use.writer_resource, *use.writer);
    }
    for (const auto& [resource, reader] : use.readers) {
      wait_for(resource, reader);
    }
    use = {.writer = step.id, .writer_resource = step.resource, .readers = {}};
  }
  for (const auto& [resource, id] : latest) {
    step.waits.push_back(id);
  }
}

std::string to_string(StepKind kind) {
  switch (kind) {
    case StepKind::receive_hidden:
      return "receive_hidden";
    case StepKind::embed:
      return "embed";
    case StepKind::layer:
      return "layer";
    case StepKind::head:
      return "head";
    case StepKind::send_plan:
      return "send_plan";
    case StepKind::send_hidden:
      return "send_hidden";
    case StepKind::send_tokens:
      return "send_tokens";
  }
  return "?";
}

std::string to_string(Resource resource) {
  switch (resource) {
    case Resource::compute:
      return "compute";
    case Resource::send:
      return "send";
    case Resource::receive:
      return "receive";
  }
  return "?";
}

}  // namespace stagecoach::stage
