#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "device/device.hpp"
#include "model/sampling.hpp"

namespace stagecoach::stage {

/// No prompt token is scored.
inline constexpr std::int32_t kScoreNothing = std::numeric_limits<std::int32_t>::max();

/// What one sequence brings to a visit: consecutive tokens, a piece of its prompt or one decoded
/// token.
struct VisitEntry {
  std::int32_t slot = 0;            ///< place within the block
  std::int32_t first_position = 0;  ///< of the first token; 0 starts a sequence in this place
  std::vector<std::int32_t> tokens;
  /// The prompt token after the last of `tokens`; -1 when there is none, and this entry so gives a
  /// new token.
  std::int32_t next_prompt_token = -1;
  model::SamplingParams sampling;
  std::int32_t num_logprobs = -1;  ///< -1: none (see device::SampleSpec)
  /// Prompt tokens at this position and later are scored, each by the row of the token before it.
  std::int32_t score_from = kScoreNothing;
  bool sparse = false;  ///< its rows keep a share of the earlier positions (sparse attention)

  [[nodiscard]] bool samples() const { return next_prompt_token < 0; }
  /// Whether the token after that of `row` is a prompt token to be scored.
  [[nodiscard]] bool scores(std::int64_t row) const {
    return first_position + row + 1 >= score_from &&
           (row + 1 < static_cast<std::int64_t>(tokens.size()) || !samples());
  }
  /// Rows that the head is needed for.
  [[nodiscard]] std::int64_t head_rows() const;
  friend bool operator==(const VisitEntry&, const VisitEntry&);
};

/// A sequence that has ended: its place's pages are free again.
struct Release {
  std::int32_t block = 0;
  std::int32_t slot = 0;
  friend bool operator==(const Release&, const Release&) = default;
};

/// One block passing every stage once. Made by the first stage, sent ahead of the hidden states.
struct Visit {
  std::int64_t number = 0;
  std::int32_t block = 0;
  bool last = false;                ///< no visit, but the end of the run: only releases
  std::vector<Release> releases;    ///< take effect before the entries
  std::vector<VisitEntry> entries;  ///< by slot, ascending

  [[nodiscard]] std::int64_t rows() const;
  friend bool operator==(const Visit&, const Visit&) = default;
};

std::vector<std::byte> serialize(const Visit& visit);
/// FormatError on bytes that `serialize` did not write.
Visit parse_visit(std::span<const std::byte> bytes);

/// What the last stage found out for one entry.
struct EntryOutcome {
  bool sampled = false;
  device::SampleResult chosen;               ///< if sampled
  std::vector<device::SampleResult> prompt;  ///< a scored prompt token each, if asked for
};

/// Outcomes in the order of the visit's entries.
std::vector<std::byte> serialize(const std::vector<EntryOutcome>& outcomes);
std::vector<EntryOutcome> parse_outcomes(std::span<const std::byte> bytes);

}  // namespace stagecoach::stage
