#include "job/eval_windows.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace stagecoach::job {
namespace {

ScoredTokens cut(std::span<const std::int32_t> tokens, std::int64_t begin, std::int64_t end) {
  return {.tokens = {tokens.begin() + begin, tokens.begin() + end}};
}

}  // namespace

std::vector<ScoredTokens> rolling_windows(std::span<const std::int32_t> tokens, std::int32_t prefix,
                                          std::int64_t window, std::int64_t stride) {
  STAGECOACH_CHECK(1 <= stride && stride <= window);
  const auto size = static_cast<std::int64_t>(tokens.size());
  std::vector<ScoredTokens> windows;
  if (size == 0) {
    return windows;
  }
  auto predicted = std::min(size, window);
  auto& first = windows.emplace_back(cut(tokens, 0, predicted));
  first.tokens.insert(first.tokens.begin(), prefix);
  while (predicted < size) {
    const auto end = std::min(size, predicted + stride);
    auto& next = windows.emplace_back(cut(tokens, end - window - 1, end));
    next.score_from = static_cast<std::int32_t>(window + 1 - (end - predicted));
    predicted = end;
  }
  return windows;
}

std::vector<ScoredTokens> stream_windows(std::span<const std::int32_t> tokens,
                                         std::int64_t window) {
  std::vector<ScoredTokens> windows;
  const auto size = static_cast<std::int64_t>(tokens.size());
  for (std::int64_t begin = 0; begin + window < size; begin += window) {
    windows.push_back(cut(tokens, begin, begin + window + 1));
  }
  return windows;
}

}  // namespace stagecoach::job
