#include "stage/engine.hpp"

#include <algorithm>
#include <utility>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "device/host/host_device.hpp"
#include "stage/memory_report.hpp"

namespace stagecoach::stage {

/// The rows of a GPU batch that go through the head, and what becomes of each.
struct Engine::HeadRows {
  std::vector<std::int32_t> rows;  ///< of the batch's hidden states
  std::vector<device::SampleSpec> specs;
  std::vector<std::size_t> entries;  ///< of the visit
};

/// Results of a visit's head steps, written on the compute stream and read on the send stream.
struct Engine::Outcomes {
  struct Batch {
    HeadRows rows;
    std::vector<device::SampleResult> results;
  };
  std::vector<Batch> batches;

  [[nodiscard]] std::vector<EntryOutcome> by_entry(std::size_t entries) const {
    std::vector<EntryOutcome> outcomes(entries);
    for (const auto& batch : batches) {
      for (std::size_t i = 0; i < batch.results.size(); ++i) {
        auto& outcome = outcomes[batch.rows.entries[i]];
        if (batch.rows.specs[i].target >= 0) {
          outcome.prompt.push_back(batch.results[i]);
        } else {
          outcome.sampled = true;
          outcome.chosen = batch.results[i];
        }
      }
    }
    return outcomes;
  }
};

namespace {

std::size_t kv_bytes(const StageShape& shape, std::int64_t pages_per_layer) {
  return kv_page_bytes(shape) * static_cast<std::size_t>(pages_per_layer * shape.contents.layers);
}

std::span<std::byte> bytes_of(float* values, std::int64_t count) {
  return {reinterpret_cast<std::byte*>(values), static_cast<std::size_t>(count) * sizeof(float)};
}

device::SampleSpec score_spec(const VisitEntry& entry, std::int32_t target) {
  return {.target = target, .num_logprobs = std::max(0, entry.num_logprobs)};
}

device::SampleSpec sample_spec(const VisitEntry& entry) {
  const auto position = entry.first_position + static_cast<std::int64_t>(entry.tokens.size());
  return {.temperature = entry.sampling.temperature,
          .top_k = entry.sampling.top_k,
          .top_p = entry.sampling.top_p,
          .uniform = model::uniform_at(entry.sampling.key, position),
          .num_logprobs = entry.num_logprobs};
}

}  // namespace

Engine::Engine(StageShape shape, std::int64_t kv_pages_per_layer,
               const offload::StageWeights& weights, device::Device& device,
               comm::Transport& transport, AbortSignal& abort)
    : shape_(std::move(shape)),
      weights_(weights),
      device_(device),
      transport_(transport),
      abort_(abort),
      scheduler_(shape_),
      kv_memory_(device.allocate(kv_bytes(shape_, kv_pages_per_layer), "KV cache")),
      hidden_memory_(device.allocate(kHiddenRing * hidden_buffer_bytes(shape_), "hidden states")),
      workspace_memory_(device.allocate(workspace_bytes(shape_), "workspace")),
      pages_({kv_memory_.data(), kv_memory_.size_bytes()}, kv_page_bytes(shape_),
             shape_.batch.page_tokens, shape_.contents.layers, shape_.batch.places()),
      workspace_(shape_.spec, shape_.batch.max_batch_rows(), workspace_memory_.as<float>()),
      compute_(device.create_stream("compute")),
      send_(device::make_host_stream("send", abort)),
      receive_(device::make_host_stream("receive", abort)) {}

Engine::~Engine() = default;

device::Stream& Engine::stream_of(Resource resource) const {
  switch (resource) {
    case Resource::compute:
      return *compute_;
    case Resource::send:
      return *send_;
    case Resource::receive:
      return *receive_;
  }
  throw InternalError("no such resource");
}

float* Engine::hidden_rows(std::int32_t ring, std::int64_t first_row) const {
  return reinterpret_cast<float*>(hidden_memory_.data() +
                                  static_cast<std::size_t>(ring) * hidden_buffer_bytes(shape_)) +
         first_row * shape_.spec.hidden;
}

std::int64_t Engine::place_of(std::int32_t block, std::int32_t slot) const {
  return block * shape_.batch.block() + slot;
}

void Engine::issue(const std::shared_ptr<const Visit>& visit) {
  abort_.throw_if_raised();
  if (visit->last) {
    if (!shape_.last()) {
      send_plan(visit);
    }
    return;
  }
  STAGECOACH_CHECK(visit->rows() <= shape_.batch.max_visit_rows(), "visit {} of {} rows",
                   visit->number, visit->rows());
  wait_for_ring_place();
  update_pages(*visit);
  InFlight flight{visit, scheduler_.next(*visit), nullptr};
  if (shape_.last()) {
    flight.outcomes = std::make_shared<Outcomes>();
    // Head steps keep pointers into this vector.
    flight.outcomes->batches.reserve(flight.schedule.batches.size());
  }
  for (const auto& step : flight.schedule.steps) {
    auto& stream = stream_of(step.resource);
    for (const auto& wait : step.waits) {
      if (const auto found = events_.find(wait); found != events_.end()) {
        stream.wait(found->second);
      }
    }
    run_step(step, flight);
    events_.emplace(step.id, stream.record());
  }
  in_ring_.push_back(visit->number);
}

/// A visit's last step ends after all its others, so that one event tells for the whole visit.
void Engine::wait_for_ring_place() {
  if (in_ring_.size() < static_cast<std::size_t>(kHiddenRing)) {
    return;
  }
  const auto oldest = in_ring_.front();
  const auto after = events_.lower_bound({oldest + 1, 0});
  std::prev(after)->second.wait();
  events_.erase(events_.begin(), after);
  in_ring_.erase(in_ring_.begin());
}

void Engine::update_pages(const Visit& visit) {
  for (const auto& release : visit.releases) {
    pages_.release(place_of(release.block, release.slot));
  }
  for (const auto& entry : visit.entries) {
    pages_.extend(place_of(visit.block, entry.slot),
                  entry.first_position + static_cast<std::int64_t>(entry.tokens.size()));
  }
}

void Engine::run_step(const Step& step, const InFlight& flight) {
  switch (step.kind) {
    case StepKind::receive_hidden:
      return receive_hidden(step, flight);
    case StepKind::embed:
      return embed(step, flight);
    case StepKind::layer:
      return layer(step, flight);
    case StepKind::head:
      return head(step, flight);
    case StepKind::send_plan:
      return send_plan(flight.visit);
    case StepKind::send_hidden:
      return send_hidden(step, flight);
    case StepKind::send_tokens:
      return send_tokens(flight);
  }
}

void Engine::embed(const Step& step, const InFlight& flight) {
  const auto& batch = flight.schedule.batches[static_cast<std::size_t>(step.gpu_batch)];
  device::EmbedArgs args{.token_table = weights_.token_table(),
                         .position_table = weights_.position_table(),
                         .out = hidden_rows(flight.schedule.ring, batch.first_row),
                         .width = shape_.spec.hidden};
  for (auto i = batch.first_entry; i < batch.first_entry + batch.num_entries; ++i) {
    const auto& entry = flight.visit->entries[static_cast<std::size_t>(i)];
    auto position = entry.first_position + static_cast<std::int32_t>(shape_.spec.position_offset);
    for (const auto token : entry.tokens) {
      args.tokens.push_back(token);
      args.positions.push_back(position++);
    }
  }
  device_.embed(*compute_, std::move(args));
}

std::vector<device::SequenceRows> Engine::sequences_of(const Visit& visit, const GpuBatch& batch,
                                                       std::int64_t layer) const {
  std::vector<device::SequenceRows> sequences;
  std::int32_t row = 0;
  for (auto i = batch.first_entry; i < batch.first_entry + batch.num_entries; ++i) {
    const auto& entry = visit.entries[static_cast<std::size_t>(i)];
    const auto rows = static_cast<std::int32_t>(entry.tokens.size());
    sequences.push_back({.first_row = row,
                         .num_rows = rows,
                         .first_position = entry.first_position,
                         .pages = pages_.pages(place_of(visit.block, entry.slot), layer)});
    row += rows;
  }
  return sequences;
}

void Engine::layer(const Step& step, const InFlight& flight) {
  const auto& batch = flight.schedule.batches[static_cast<std::size_t>(step.gpu_batch)];
  enqueue_layer(device_, *compute_, shape_.spec, weights_.layer(step.layer), workspace_,
                {.hidden = hidden_rows(flight.schedule.ring, batch.first_row),
                 .rows = batch.num_rows,
                 .page_tokens = shape_.batch.page_tokens,
                 .kv_type = shape_.batch.kv_type,
                 .sequences = sequences_of(*flight.visit, batch, step.layer)});
}

void Engine::head(const Step& step, const InFlight& flight) {
  const auto& batch = flight.schedule.batches[static_cast<std::size_t>(step.gpu_batch)];
  HeadRows wanted;
  const auto add = [&](std::int64_t entry, std::int32_t row, const device::SampleSpec& spec) {
    wanted.entries.push_back(static_cast<std::size_t>(entry));
    wanted.rows.push_back(row);
    wanted.specs.push_back(spec);
  };
  std::int32_t row = 0;
  for (auto i = batch.first_entry; i < batch.first_entry + batch.num_entries; ++i) {
    const auto& entry = flight.visit->entries[static_cast<std::size_t>(i)];
    const auto rows = static_cast<std::int32_t>(entry.tokens.size());
    for (std::int32_t r = 0; entry.prompt_logprobs && r + 1 < rows; ++r) {
      add(i, row + r, score_spec(entry, entry.tokens[static_cast<std::size_t>(r) + 1]));
    }
    if (entry.samples()) {
      add(i, row + rows - 1, sample_spec(entry));
    } else if (entry.prompt_logprobs) {
      add(i, row + rows - 1, score_spec(entry, entry.next_prompt_token));
    }
    row += rows;
  }
  auto& slot = flight.outcomes->batches.emplace_back();
  slot.rows = std::move(wanted);
  slot.results.resize(slot.rows.rows.size());
  const auto chunk = static_cast<std::size_t>(head_chunk_rows(shape_));
  for (std::size_t first = 0; first < slot.results.size(); first += chunk) {
    const auto count = std::min(chunk, slot.results.size() - first);
    head_chunk(slot.rows, first, count, hidden_rows(flight.schedule.ring, batch.first_row),
               std::span(slot.results).subspan(first, count));
  }
}

void Engine::head_chunk(const HeadRows& rows, std::size_t first, std::size_t count,
                        const float* hidden, std::span<device::SampleResult> results) {
  const auto& spec = shape_.spec;
  const auto num_rows = static_cast<std::int64_t>(count);
  const auto begin = static_cast<std::ptrdiff_t>(first);
  const auto end = static_cast<std::ptrdiff_t>(first + count);
  float* const gathered = workspace_memory_.as<float>();
  float* const normed = gathered + num_rows * spec.hidden;
  float* const logits = normed + num_rows * spec.hidden;
  device_.gather_rows(*compute_, {.x = hidden,
                                  .rows = {rows.rows.begin() + begin, rows.rows.begin() + end},
                                  .out = gathered,
                                  .width = spec.hidden});
  device_.layer_norm(*compute_, {.x = gathered,
                                 .weight = weights_.final_norm().weight,
                                 .bias = weights_.final_norm().bias,
                                 .out = normed,
                                 .rows = num_rows,
                                 .width = spec.hidden,
                                 .epsilon = static_cast<float>(spec.norm_epsilon)});
  device_.linear(*compute_, {.x = normed,
                             .weight = weights_.head(),
                             .out = logits,
                             .rows = num_rows,
                             .in_features = spec.hidden,
                             .out_features = spec.vocab,
                             .out_stride = spec.vocab});
  device::SampleArgs sample{.logits = logits,
                            .vocab = spec.vocab,
                            .specs = {rows.specs.begin() + begin, rows.specs.begin() + end},
                            .results = results};
  for (std::size_t i = 0; i < count; ++i) {
    sample.specs[i].row = static_cast<std::int32_t>(i);
  }
  device_.sample(*compute_, std::move(sample));
}

void Engine::receive_hidden(const Step& step, const InFlight& flight) {
  const auto target =
      bytes_of(hidden_rows(flight.schedule.ring, 0), step.rows * shape_.spec.hidden);
  receive_->enqueue([this, target, number = flight.visit->number] {
    transport_.receive(target, transport_.rank() - 1, comm::Channel::hidden,
                       fmt::format("visit {}'s hidden states", number));
  });
}

void Engine::send_plan(const std::shared_ptr<const Visit>& visit) {
  send_->enqueue([this, visit] {
    transport_.send_message(serialize(*visit), transport_.rank() + 1, comm::Channel::plan,
                            fmt::format("visit {}'s plan", visit->number));
  });
}

void Engine::send_hidden(const Step& step, const InFlight& flight) {
  const auto source =
      bytes_of(hidden_rows(flight.schedule.ring, 0), step.rows * shape_.spec.hidden);
  send_->enqueue([this, source, number = flight.visit->number] {
    transport_.send(source, transport_.rank() + 1, comm::Channel::hidden,
                    fmt::format("visit {}'s hidden states", number));
  });
}

void Engine::send_tokens(const InFlight& flight) {
  send_->enqueue([this, visit = flight.visit, outcomes = flight.outcomes] {
    transport_.send_message(serialize(outcomes->by_entry(visit->entries.size())), 0,
                            comm::Channel::tokens, fmt::format("visit {}'s tokens", visit->number));
  });
}

void Engine::finish() {
  for (const auto resource : {Resource::receive, Resource::compute, Resource::send}) {
    stream_of(resource).record().wait();
  }
  events_.clear();
  in_ring_.clear();
}

}  // namespace stagecoach::stage
