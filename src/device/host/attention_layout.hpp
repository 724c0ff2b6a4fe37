#pragma once

#include <cstddef>
#include <cstdint>

#include "device/device.hpp"

namespace stagecoach::device {

/// Where the numbers of one token of one KV head lie in a page.
struct KvRun {
  std::byte* params = nullptr;  ///< of the groups, where packed
  std::int64_t params_bytes = 0;
  std::byte* numbers = nullptr;  ///< or their codes
  std::int64_t numbers_bytes = 0;
};

/// `head` counts the heads of K, then those of V.
inline KvRun kv_run(const AttentionArgs& args, std::byte* page, std::int64_t head,
                    std::int64_t slot) {
  const auto& format = args.kv_format;
  std::byte* from = page + head * kv_head_bytes(format, args.page_tokens, args.head_dim);
  const std::int64_t bytes = kv_head_bytes(format, 1, args.head_dim);
  const std::int64_t params = format.packed() ? 4 * pack_groups(format.pack(), args.head_dim) : 0;
  const std::int64_t numbers = bytes - params;
  return {from + slot * params, params, from + args.page_tokens * params + slot * numbers, numbers};
}

/// Whether a row keeps an earlier position that has this score.
inline bool keeps(const AttentionSelection& selection, float score, std::int64_t position) {
  return score > selection.threshold ||
         (score == selection.threshold && position <= selection.last_equal);
}

}  // namespace stagecoach::device
