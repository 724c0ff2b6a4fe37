#include "device/host/attention.hpp"

#include <algorithm>

namespace stagecoach::device {
namespace {

std::vector<AttentionItem> make_items(const AttentionArgs& args) {
  const std::int64_t group = args.heads / args.kv_heads;
  std::vector<AttentionItem> items;
  for (const auto& sequence : args.sequences) {
    const std::int64_t pairs = sequence.num_rows * group;
    for (std::int64_t kv_head = 0; kv_head < args.kv_heads; ++kv_head) {
      for (std::int64_t pair = 0; pair < pairs; pair += kMaxAttentionPairs) {
        items.push_back({&sequence, kv_head, pair, std::min(kMaxAttentionPairs, pairs - pair)});
      }
    }
  }
  return items;
}

void store_sequence(const AttentionArgs& args, const AttentionKernels& kernels,
                    const SequenceRows& sequence) {
  const auto row_bytes = args.head_dim * static_cast<std::int64_t>(kv_element_bytes(args.kv_type));
  for (std::int64_t r = 0; r < sequence.num_rows; ++r) {
    const std::int64_t position = sequence.first_position + r;
    const std::int64_t slot = position % args.page_tokens;
    std::byte* page = sequence.pages[static_cast<std::size_t>(position / args.page_tokens)];
    for (std::int64_t head = 0; head < args.kv_heads; ++head) {
      const std::int64_t from = (sequence.first_row + r) * args.row_stride + head * args.head_dim;
      const std::int64_t key = (head * args.page_tokens + slot) * row_bytes;
      const std::int64_t value = key + args.kv_heads * args.page_tokens * row_bytes;
      kernels.store_row(args.key + from, args.head_dim, args.kv_type, page + key);
      kernels.store_row(args.value + from, args.head_dim, args.kv_type, page + value);
    }
  }
}

}  // namespace

void store_kv(const AttentionArgs& args, const AttentionKernels& kernels, ThreadPool& pool) {
  pool.parallel_for(
      static_cast<std::int64_t>(args.sequences.size()), [&](std::int64_t index, int /*worker*/) {
        store_sequence(args, kernels, args.sequences[static_cast<std::size_t>(index)]);
      });
}

void attention(const AttentionArgs& args, const AttentionKernels& kernels, ThreadPool& pool,
               const Scratch& scratch) {
  const auto items = make_items(args);
  pool.parallel_for(static_cast<std::int64_t>(items.size()), [&](std::int64_t index, int worker) {
    kernels.attend(args, items[static_cast<std::size_t>(index)], scratch.of_worker(worker));
  });
}

}  // namespace stagecoach::device
