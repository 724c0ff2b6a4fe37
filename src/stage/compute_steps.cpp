#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "stage/decoder_layer.hpp"
#include "stage/step_context.hpp"

namespace stagecoach::stage::compute_steps {
namespace {

LayerWorkspace workspace_of(const StepContext& context, std::int32_t turn) {
  const auto& shape = context.plan.shape;
  return {shape.spec, shape.batch.max_batch_rows(), context.memory.workspace(turn)};
}

offload::ByteRange unit_of(const StepContext& context, const Step& step) {
  return context.plan.weights.units[static_cast<std::size_t>(step.unit)];
}

/// Runs a part of the layer that the step belongs to.
void run_layer(const StepContext& context, const Step& step, const VisitState& visit,
               void (DecoderLayer::*part)()) {
  const auto& weights = context.plan.weights;
  const auto* const buffer =
      weights.buffers > 0 ? context.memory.weight_buffer(step.buffer) : nullptr;
  const auto origin = weights.streamed(static_cast<std::size_t>(step.unit)).begin;
  const auto layer = visit.schedule.widens
                         ? context.weights.widened_layer(step.layer, unit_of(context, step), buffer,
                                                         origin, context.memory.wide_weights())
                         : context.weights.layer(step.layer, buffer, origin);
  const auto workspace = workspace_of(context, step.turn);
  DecoderLayer decoder(context.device, context.streams.of(Resource::compute),
                       context.plan.shape.spec, layer, workspace,
                       reinterpret_cast<float*>(context.hidden(step, visit)), step.rows);
  (decoder.*part)();
}

using PlacePage = std::function<void(const SequenceKv&, const PagePlace&, device::SequenceRows&)>;
using PlaceSplit = std::function<void(const SequenceKv&, device::SequenceRows&)>;

/// The batch's sequences, each with its pages in position order as `place` finds them, and with
/// what `place_split` gives those that are split.
std::vector<device::SequenceRows> sequences_of(const Step& step, const VisitState& visit,
                                               const PlacePage& place,
                                               const PlaceSplit& place_split = nullptr) {
  const auto& batch = visit.batch(step);
  const auto& kv = visit.kv(step);
  std::vector<device::SequenceRows> sequences;
  std::int32_t row = 0;
  for (std::int64_t i = 0; i < batch.num_entries; ++i) {
    const auto& entry = visit.visit->entries[static_cast<std::size_t>(batch.first_entry + i)];
    const auto rows = static_cast<std::int32_t>(entry.tokens.size());
    auto& sequence = sequences.emplace_back();
    sequence.first_row = row;
    sequence.num_rows = rows;
    sequence.first_position = entry.first_position;
    sequence.sparse = entry.sparse;
    const auto& pages = kv.sequences[static_cast<std::size_t>(i)];
    for (const auto& page : pages.pages) {
      place(pages, page, sequence);
    }
    if (pages.split >= 0 && place_split) {
      place_split(pages, sequence);
    }
    row += rows;
  }
  return sequences;
}

device::AttentionArgs args_of(const StepContext& context, float* qkv, float* out) {
  const auto& shape = context.plan.shape;
  auto args = attention_args(shape.spec, qkv, out, shape.batch.page_tokens, shape.batch.kv_format);
  args.sparsity = shape.batch.attention_sparsity;
  return args;
}

/// A page where attention on the device finds it; null: not there.
std::byte* page_on_device(const StepContext& context, const Step& step, const PagePlace& page) {
  return page.on_device()   ? context.memory.kv_device(step.layer, page.use.slot)
         : page.staged >= 0 ? context.memory.kv_staging(step.turn, page.staged)
                            : nullptr;
}

/// Selected values of the pages of which the device has the keys alone.
void gather_values(const StepContext& context, const Step& step, const VisitState& visit,
                   device::AttentionArgs args) {
  args.sequences = sequences_of(
      step, visit,
      [&](const SequenceKv&, const PagePlace& page, device::SequenceRows& sequence) {
        sequence.pages.push_back(page.keys_only ? context.page_in_dram(page, step) : nullptr);
      },
      [&](const SequenceKv& pages, device::SequenceRows& sequence) {
        if (!pages.cpu_attends) {
          sequence.scores = context.memory.scores_cpu(step.turn, pages.split);
          sequence.selection = context.memory.selection_cpu(step.turn, pages.split);
          sequence.values = context.memory.values_cpu(step.turn, pages.split);
        }
      });
  context.cpu->gather_values(context.streams.of(Resource::cpu_compute), std::move(args));
}

void head_chunk(const StepContext& context, HeadRows& rows, std::size_t first, std::size_t count,
                const float* hidden, float* workspace) {
  const auto& spec = context.plan.shape.spec;
  auto& device = context.device;
  auto& stream = context.streams.of(Resource::compute);
  const auto num_rows = static_cast<std::int64_t>(count);
  const auto begin = static_cast<std::ptrdiff_t>(first);
  const auto end = static_cast<std::ptrdiff_t>(first + count);
  float* const gathered = workspace;
  float* const normed = gathered + num_rows * spec.hidden;
  float* const logits = normed + num_rows * spec.hidden;
  device.gather_rows(stream, {.x = hidden,
                              .rows = {rows.rows.begin() + begin, rows.rows.begin() + end},
                              .out = gathered,
                              .width = spec.hidden});
  device.layer_norm(stream, {.x = gathered,
                             .weight = context.weights.final_norm().weight,
                             .bias = context.weights.final_norm().bias,
                             .out = normed,
                             .rows = num_rows,
                             .width = spec.hidden,
                             .epsilon = static_cast<float>(spec.norm_epsilon)});
  device.linear(stream, {.x = normed,
                         .weight = context.weights.head(),
                         .out = logits,
                         .rows = num_rows,
                         .in_features = spec.hidden,
                         .out_features = spec.vocab,
                         .out_stride = spec.vocab});
  device::SampleArgs sample{.logits = logits,
                            .vocab = spec.vocab,
                            .specs = {rows.specs.begin() + begin, rows.specs.begin() + end},
                            .results = std::span(rows.results).subspan(first, count)};
  for (std::size_t i = 0; i < count; ++i) {
    sample.specs[i].row = static_cast<std::int32_t>(i);
  }
  device.sample(stream, std::move(sample));
}

}  // namespace

void embed(const StepContext& context, const Step& step, const VisitState& visit) {
  const auto& batch = visit.batch(step);
  const auto& spec = context.plan.shape.spec;
  device::EmbedArgs args{.token_table = context.weights.token_table(),
                         .position_table = context.weights.position_table(),
                         .out = reinterpret_cast<float*>(context.hidden(step, visit)),
                         .width = spec.hidden};
  for (auto i = batch.first_entry; i < batch.first_entry + batch.num_entries; ++i) {
    const auto& entry = visit.visit->entries[static_cast<std::size_t>(i)];
    auto position = entry.first_position + static_cast<std::int32_t>(spec.position_offset);
    for (const auto token : entry.tokens) {
      args.tokens.push_back(token);
      args.positions.push_back(position++);
    }
  }
  context.device.embed(context.streams.of(Resource::compute), std::move(args));
}

void attention_in(const StepContext& context, const Step& step, const VisitState& visit) {
  run_layer(context, step, visit, &DecoderLayer::attention_in);
}

void attention_out(const StepContext& context, const Step& step, const VisitState& visit) {
  run_layer(context, step, visit, &DecoderLayer::attention_out);
}

void mlp(const StepContext& context, const Step& step, const VisitState& visit) {
  run_layer(context, step, visit, &DecoderLayer::mlp);
}

void store_kv(const StepContext& context, const Step& step, const VisitState& visit) {
  auto args = args_of(context, context.memory.rows_cpu(step.turn), nullptr);
  args.sequences = sequences_of(
      step, visit, [&](const SequenceKv&, const PagePlace& page, device::SequenceRows& sequence) {
        const bool here = !page.on_device() && page.use.has_new;
        sequence.pages.push_back(here ? context.page_in_dram(page, step) : nullptr);
      });
  context.cpu->store_kv(context.streams.of(Resource::cpu_compute), std::move(args));
}

void attend_cpu(const StepContext& context, const Step& step, const VisitState& visit) {
  auto args = args_of(context, context.memory.rows_cpu(step.turn), nullptr);
  args.sequences = sequences_of(
      step, visit,
      [&](const SequenceKv&, const PagePlace& page, device::SequenceRows& sequence) {
        const bool here = page.partial >= 0;
        sequence.pages.push_back(here ? context.page_in_dram(page, step) : nullptr);
        sequence.partials.push_back(here ? context.memory.partials_cpu(step.turn, page.partial)
                                         : nullptr);
      },
      [&](const SequenceKv& pages, device::SequenceRows& sequence) {
        sequence.scores = context.memory.scores_cpu(step.turn, pages.split);
        sequence.selection = context.memory.selection_cpu(step.turn, pages.split);
      });
  auto& stream = context.streams.of(Resource::cpu_compute);
  const auto& kv = visit.kv(step);
  if (kv.splits > 0) {
    context.cpu->attention_scores(stream, args);
    context.cpu->select_top(stream, args);
  }
  if (kv.splits > 0 && !context.plan.cpu_attention) {
    gather_values(context, step, visit, std::move(args));
  } else {
    context.cpu->attention_partials(stream, std::move(args));
  }
}

void widen_weights(const StepContext& context, const Step& step, const VisitState& /*visit*/) {
  const auto& weights = context.plan.weights;
  const auto* const buffer =
      weights.buffers > 0 ? context.memory.weight_buffer(step.buffer) : nullptr;
  const auto origin = weights.streamed(static_cast<std::size_t>(step.unit)).begin;
  auto& stream = context.streams.of(Resource::compute);
  const auto widen = [&](const device::Weights& rows, Half* out, std::int64_t count,
                         std::int64_t columns) {
    if (count > 0) {
      context.device.widen(stream, {rows, out, count, columns});
    }
  };
  for (const auto& matrix : context.weights.wide_matrices(
           step.layer, unit_of(context, step), buffer, origin, context.memory.wide_weights())) {
    widen(matrix.first, matrix.out, matrix.first_rows, matrix.columns);
    widen(matrix.rest, matrix.out + matrix.first_rows * matrix.columns, matrix.rest_rows,
          matrix.columns);
  }
}

void score_kv(const StepContext& context, const Step& step, const VisitState& visit) {
  auto args = args_of(context, workspace_of(context, step.turn).qkv, nullptr);
  args.sequences = sequences_of(
      step, visit,
      [&](const SequenceKv&, const PagePlace& page, device::SequenceRows& sequence) {
        sequence.pages.push_back(page_on_device(context, step, page));
      },
      [&](const SequenceKv& pages, device::SequenceRows& sequence) {
        sequence.scores = context.memory.scores_device(step.turn, pages.split);
      });
  auto& stream = context.streams.of(Resource::compute);
  context.device.store_kv(stream, args);
  context.device.attention_scores(stream, std::move(args));
}

void attention(const StepContext& context, const Step& step, const VisitState& visit) {
  const auto workspace = workspace_of(context, step.turn);
  auto args = args_of(context, workspace.qkv, workspace.attention);
  args.sequences = sequences_of(
      step, visit,
      [&](const SequenceKv& pages, const PagePlace& page, device::SequenceRows& sequence) {
        sequence.pages.push_back(page_on_device(context, step, page));
        if (pages.cpu_attends) {
          sequence.partials.push_back(page.partial >= 0
                                          ? context.memory.partials_device(step.turn, page.partial)
                                          : nullptr);
        }
      },
      [&](const SequenceKv& pages, device::SequenceRows& sequence) {
        sequence.scores = context.memory.scores_device(step.turn, pages.split);
        sequence.selection = context.memory.selection_device(step.turn, pages.split);
        if (!pages.cpu_attends) {
          sequence.values = context.memory.values_device(step.turn, pages.split);
        }
      });
  auto& stream = context.streams.of(Resource::compute);
  const auto& kv = visit.kv(step);
  if (kv.splits == 0) {
    context.device.store_kv(stream, args);  // else score_kv has
  } else if (!context.plan.cpu_attention) {
    context.device.scatter_values(stream, args);
  }
  context.device.attention(stream, std::move(args));
}

void head(const StepContext& context, const Step& step, const VisitState& visit) {
  auto& rows = *visit.outcomes->batches.emplace_back(
      std::make_unique<HeadRows>(head_rows_of(*visit.visit, visit.batch(step))));
  const auto* const hidden = reinterpret_cast<const float*>(context.hidden(step, visit));
  const auto chunk = static_cast<std::size_t>(head_chunk_rows(context.plan.shape));
  for (std::size_t first = 0; first < rows.results.size(); first += chunk) {
    head_chunk(context, rows, first, std::min(chunk, rows.results.size() - first), hidden,
               context.memory.workspace(step.turn));
  }
}

}  // namespace stagecoach::stage::compute_steps
