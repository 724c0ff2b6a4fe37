#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stagecoach::job {

/// Tokens of which those from index `score_from` on are scored, each given all before it. The last
/// one is only a target.
struct ScoredTokens {
  std::vector<std::int32_t> tokens;
  std::int32_t score_from = 1;

  [[nodiscard]] std::int64_t targets() const {
    return static_cast<std::int64_t>(tokens.size()) - score_from;
  }
  friend bool operator==(const ScoredTokens&, const ScoredTokens&) = default;
};

/// Windows in which every one of `tokens` is predicted exactly once, at most `window` tokens fed in
/// each: loglikelihood_rolling of lm-evaluation-harness with a context of window - stride + 1. The
/// first window feeds `prefix` and predicts `window` tokens. Every later one predicts the next
/// `stride` tokens, or what is left, and feeds the `window` tokens before the last of them, so that
/// it begins in text that was predicted before. 1 <= stride <= window. No tokens give no windows.
std::vector<ScoredTokens> rolling_windows(std::span<const std::int32_t> tokens, std::int32_t prefix,
                                          std::int64_t window, std::int64_t stride);

/// Windows that feed tokens [window * i, window * (i + 1)) and predict each one's next. What is
/// left for less than a window is dropped.
std::vector<ScoredTokens> stream_windows(std::span<const std::int32_t> tokens, std::int64_t window);

}  // namespace stagecoach::job
