#include "stage/batcher.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "offload/kv_pages.hpp"

namespace stagecoach::stage {

Batcher::Batcher(const BatchShape& shape, std::int64_t page_capacity,
                 std::vector<SequenceInput> sequences)
    : shape_(shape),
      page_capacity_(page_capacity),
      sequences_(std::move(sequences)),
      places_(static_cast<std::size_t>(shape.places())) {
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    STAGECOACH_CHECK(sequences_[i].fed_prompt() >= 1 && sequences_[i].max_new_tokens >= 0,
                     "sequence {}", i);
    const auto pages = pages_of(static_cast<std::int64_t>(i));
    if (pages > page_capacity_) {
      throw ConfigError(
          fmt::format("request {} needs {} KV pages a layer, the stages have room for {}: raise "
                      "the budget of the "
                      "tier that is full (see the memory report), or lower --max-new-tokens",
                      i + 1, pages, page_capacity_));
    }
  }
}

Batcher::Place& Batcher::place(std::int32_t block, std::int32_t slot) {
  return places_.at(static_cast<std::size_t>(block * shape_.block() + slot));
}

std::int64_t Batcher::sequence_at(std::int32_t block, std::int32_t slot) const {
  return places_.at(static_cast<std::size_t>(block * shape_.block() + slot)).sequence;
}

const SequenceInput& Batcher::sequence_in(const Place& place) const {
  return sequences_[static_cast<std::size_t>(place.sequence)];
}

std::int64_t Batcher::pages_of(std::int64_t sequence) const {
  return offload::pages_for(sequences_[static_cast<std::size_t>(sequence)].stored_tokens(),
                            shape_.page_tokens);
}

bool Batcher::done() const {
  return alive_ == 0 && next_sequence_ == static_cast<std::int64_t>(sequences_.size());
}

std::int64_t Batcher::alive_in(std::int32_t block) const {
  const auto first = places_.begin() + block * shape_.block();
  return std::count_if(first, first + shape_.block(),
                       [](const Place& place) { return place.sequence >= 0; });
}

bool Batcher::may_admit(std::int32_t block) const {
  const auto unfinished = alive_ + static_cast<std::int64_t>(sequences_.size()) - next_sequence_;
  const auto share = (unfinished + shape_.inner_iterations - 1) / shape_.inner_iterations;
  return next_sequence_ < static_cast<std::int64_t>(sequences_.size()) &&
         claimed_pages_ + pages_of(next_sequence_) <= page_capacity_ && alive_in(block) < share;
}

void Batcher::refill(std::int32_t block) {
  if (shape_.admission == Admission::whole && alive_in(block) > 0) {
    return;
  }
  for (std::int32_t slot = 0; slot < shape_.block() && may_admit(block); ++slot) {
    if (auto& here = place(block, slot); here.sequence < 0) {
      claimed_pages_ += pages_of(next_sequence_);
      here = {.sequence = next_sequence_++};
      ++alive_;
    }
  }
}

/// Tokens that each slot brings: one for a decoding sequence, its share of the piece for a prompt.
std::vector<std::int64_t> Batcher::grant_prompt_tokens(std::int32_t block) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(shape_.block()), 0);
  std::vector<std::int32_t> in_prompt;
  for (std::int32_t slot = 0; slot < shape_.block(); ++slot) {
    const auto& here = place(block, slot);
    if (here.next_token >= 0) {
      tokens[static_cast<std::size_t>(slot)] = 1;
    } else if (here.sequence >= 0) {
      in_prompt.push_back(slot);
    }
  }
  std::sort(in_prompt.begin(), in_prompt.end(), [&](std::int32_t a, std::int32_t b) {
    return place(block, a).sequence < place(block, b).sequence;
  });
  std::int64_t left =
      shape_.admission == Admission::whole ? shape_.max_visit_rows() : shape_.prefill_piece;
  for (const auto slot : in_prompt) {
    const auto& here = place(block, slot);
    const auto granted = std::min(left, sequence_in(here).fed_prompt() - here.position);
    tokens[static_cast<std::size_t>(slot)] = granted;
    left -= granted;
  }
  return tokens;
}

VisitEntry Batcher::make_entry(std::int32_t slot, Place& place, std::int64_t tokens) const {
  const auto& sequence = sequence_in(place);
  VisitEntry entry;
  entry.slot = slot;
  entry.first_position = static_cast<std::int32_t>(place.position);
  entry.sampling = sequence.sampling;
  entry.num_logprobs = sequence.num_logprobs;
  const bool decodes = place.next_token >= 0;
  entry.sparse = shape_.attention_sparsity < 1 && (decodes || sequence.scored_only());
  if (decodes) {
    entry.tokens = {std::exchange(place.next_token, -1)};
    place.position += 1;
    return entry;
  }
  const auto piece = sequence.prompt.subspan(static_cast<std::size_t>(place.position),
                                             static_cast<std::size_t>(tokens));
  entry.tokens.assign(piece.begin(), piece.end());
  entry.score_from = sequence.score_from;
  place.position += tokens;
  if (place.position < static_cast<std::int64_t>(sequence.prompt.size())) {
    entry.next_prompt_token = sequence.prompt[static_cast<std::size_t>(place.position)];
  }
  return entry;
}

std::optional<Visit> Batcher::next_visit(std::int32_t block) {
  refill(block);
  const auto tokens = grant_prompt_tokens(block);
  Visit visit;
  for (std::int32_t slot = 0; slot < shape_.block(); ++slot) {
    if (const auto count = tokens[static_cast<std::size_t>(slot)]; count > 0) {
      visit.entries.push_back(make_entry(slot, place(block, slot), count));
    }
  }
  if (visit.entries.empty()) {
    return std::nullopt;
  }
  visit.number = next_visit_++;
  visit.block = block;
  visit.releases = std::exchange(releases_, {});
  return visit;
}

Visit Batcher::last_visit() {
  STAGECOACH_CHECK(done());
  return {
      .number = next_visit_, .last = true, .releases = std::exchange(releases_, {}), .entries = {}};
}

void Batcher::complete(const Visit& visit, std::span<const TokenOutcome> outcomes) {
  STAGECOACH_CHECK(outcomes.size() == visit.entries.size());
  for (std::size_t i = 0; i < visit.entries.size(); ++i) {
    const auto& entry = visit.entries[i];
    auto& here = place(visit.block, entry.slot);
    if (entry.samples() && !outcomes[i].ended) {
      here.next_token = outcomes[i].token;
    } else if (entry.samples() || here.position == sequence_in(here).fed_prompt()) {
      end_sequence(visit.block, entry.slot);
    }
  }
}

void Batcher::end_sequence(std::int32_t block, std::int32_t slot) {
  auto& here = place(block, slot);
  claimed_pages_ -= pages_of(here.sequence);
  releases_.push_back({block, slot});
  here = {};
  --alive_;
}

}  // namespace stagecoach::stage
