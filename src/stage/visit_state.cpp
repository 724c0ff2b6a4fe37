#include "stage/visit_state.hpp"

#include <algorithm>

namespace stagecoach::stage {
namespace {

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

HeadRows head_rows_of(const Visit& visit, const GpuBatch& batch) {
  HeadRows wanted;
  const auto add = [&](std::int64_t entry, std::int32_t row, const device::SampleSpec& spec) {
    wanted.entries.push_back(static_cast<std::size_t>(entry));
    wanted.rows.push_back(row);
    wanted.specs.push_back(spec);
  };
  std::int32_t row = 0;
  for (auto i = batch.first_entry; i < batch.first_entry + batch.num_entries; ++i) {
    const auto& entry = visit.entries[static_cast<std::size_t>(i)];
    const auto rows = static_cast<std::int32_t>(entry.tokens.size());
    for (std::int32_t r = 0; r < rows; ++r) {
      if (entry.scores(r)) {
        const bool last = r + 1 == rows;
        add(i, row + r,
            score_spec(entry, last ? entry.next_prompt_token
                                   : entry.tokens[static_cast<std::size_t>(r) + 1]));
      }
    }
    if (entry.samples()) {
      add(i, row + rows - 1, sample_spec(entry));
    }
    row += rows;
  }
  wanted.results.resize(wanted.rows.size());
  return wanted;
}

std::vector<EntryOutcome> Outcomes::by_entry(std::size_t entries) const {
  std::vector<EntryOutcome> outcomes(entries);
  for (const auto& batch : batches) {
    for (std::size_t i = 0; i < batch->results.size(); ++i) {
      auto& outcome = outcomes[batch->entries[i]];
      if (batch->specs[i].target >= 0) {
        outcome.prompt.push_back(batch->results[i]);
      } else {
        outcome.sampled = true;
        outcome.chosen = batch->results[i];
      }
    }
  }
  return outcomes;
}

}  // namespace stagecoach::stage
