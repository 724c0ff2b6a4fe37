#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/sampling.hpp"
#include "stage/batch_shape.hpp"
#include "stage/visit.hpp"

namespace stagecoach::stage {

/// A request as the batcher sees it. `prompt` must outlive the batcher.
///
/// With `max_new_tokens` 0 the sequence is only scored: its last prompt token, a target and nothing
/// else, is never fed, and the sequence ends when the token before it has been.
struct SequenceInput {
  std::span<const std::int32_t> prompt;
  std::int64_t max_new_tokens = 1;
  model::SamplingParams sampling;
  std::int32_t num_logprobs = -1;
  std::int32_t score_from = kScoreNothing;  ///< see VisitEntry

  [[nodiscard]] bool scored_only() const { return max_new_tokens == 0; }
  /// Prompt tokens that are fed.
  [[nodiscard]] std::int64_t fed_prompt() const {
    return static_cast<std::int64_t>(prompt.size()) - (scored_only() ? 1 : 0);
  }
  /// Tokens whose K and V are stored: all but the last one, generated or scored.
  [[nodiscard]] std::int64_t stored_tokens() const {
    return static_cast<std::int64_t>(prompt.size()) + max_new_tokens - 1;
  }
};

/// The token that an entry gave, and whether its sequence is over (its place is then free at once).
struct TokenOutcome {
  std::int32_t token = -1;
  bool ended = false;
};

/// Decides what every visit carries: which sequence sits in which place, and how far its prompt has
/// come. Pure: no clock, no thread, no message; the same inputs and outcomes give the same visits.
///
/// Sequences are admitted in input order, into free places in slot order, when the KV pages that
/// they may need (prompt and every new token) fit beside the claims of those already admitted, so
/// that a running job cannot run out. A block takes no more than its share of the unfinished
/// sequences, so that a job of few requests fills the pipeline too. Prompt tokens, at most
/// `prefill_piece` a visit, go to the sequences of the block in the order of their admission. With
/// Admission::whole a block takes new sequences only when all of its old ones have ended, and their
/// prompts at once.
class Batcher {
 public:
  /// `page_capacity`: KV pages a layer, the smallest over the stages. ConfigError if a sequence
  /// alone needs more.
  Batcher(const BatchShape& shape, std::int64_t page_capacity,
          std::vector<SequenceInput> sequences);

  /// The next visit of `block`, whose earlier visit must have been completed; none if the block has
  /// nothing to do now. Refills the block's free places first.
  [[nodiscard]] std::optional<Visit> next_visit(std::int32_t block);
  /// The end of the run, once done(): gives back the places that ended with the last visits.
  [[nodiscard]] Visit last_visit();

  /// Index of the sequence in a place that the last visit of `block` used.
  [[nodiscard]] std::int64_t sequence_at(std::int32_t block, std::int32_t slot) const;

  /// The visit has come back: what each of its entries gave, in order. Of entries that do not
  /// sample it does not matter: sequences that are only scored end by themselves.
  void complete(const Visit& visit, std::span<const TokenOutcome> outcomes);

  /// True when every sequence has ended.
  [[nodiscard]] bool done() const;
  /// Sequences in places now.
  [[nodiscard]] std::int64_t alive() const noexcept { return alive_; }
  [[nodiscard]] std::int64_t claimed_pages() const noexcept { return claimed_pages_; }

 private:
  struct Place {
    std::int64_t sequence = -1;
    std::int64_t position = 0;     ///< tokens whose K and V are stored or on their way
    std::int32_t next_token = -1;  ///< the decoded token to feed, once the prompt is through
  };

  [[nodiscard]] Place& place(std::int32_t block, std::int32_t slot);
  [[nodiscard]] const SequenceInput& sequence_in(const Place& place) const;
  [[nodiscard]] std::int64_t pages_of(std::int64_t sequence) const;
  [[nodiscard]] std::int64_t alive_in(std::int32_t block) const;
  [[nodiscard]] bool may_admit(std::int32_t block) const;
  void refill(std::int32_t block);
  [[nodiscard]] std::vector<std::int64_t> grant_prompt_tokens(std::int32_t block);
  [[nodiscard]] VisitEntry make_entry(std::int32_t slot, Place& place, std::int64_t tokens) const;
  void end_sequence(std::int32_t block, std::int32_t slot);

  BatchShape shape_;
  std::int64_t page_capacity_;
  std::vector<SequenceInput> sequences_;
  std::vector<Place> places_;  ///< [block * shape.block() + slot]
  std::vector<Release> releases_;
  std::int64_t next_sequence_ = 0;
  std::int64_t next_visit_ = 0;
  std::int64_t alive_ = 0;
  std::int64_t claimed_pages_ = 0;
};

}  // namespace stagecoach::stage
