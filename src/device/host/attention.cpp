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

/// Some KV heads of one page, of which every row that sees it gets a partial result.
struct PageItem {
  const SequenceRows* sequence = nullptr;
  std::int64_t page = 0;
  std::int64_t first_kv_head = 0;
  std::int64_t end_kv_head = 0;
};

// KV heads of a page that are worth waking a worker for. They lie side by side, as their results
// do, so pages are read and results written in order.
constexpr std::int64_t kHeadsAtOnce = 8;

std::vector<PageItem> make_page_items(const AttentionArgs& args) {
  std::vector<PageItem> items;
  for (const auto& sequence : args.sequences) {
    const std::int64_t tokens =
        sequence.num_rows == 0 ? 0 : std::int64_t{sequence.first_position} + sequence.num_rows;
    for (std::size_t page = 0; page < sequence.partials.size(); ++page) {
      const auto index = static_cast<std::int64_t>(page);
      if (sequence.pages[page] == nullptr || sequence.partials[page] == nullptr ||
          index * args.page_tokens >= tokens) {
        continue;
      }
      for (std::int64_t head = 0; head < args.kv_heads; head += kHeadsAtOnce) {
        items.push_back({&sequence, index, head, std::min(head + kHeadsAtOnce, args.kv_heads)});
      }
    }
  }
  return items;
}

void attend_page(const AttentionArgs& args, const AttentionKernels& kernels, const PageItem& item,
                 float* scratch) {
  const auto& sequence = *item.sequence;
  const std::int64_t group = args.heads / args.kv_heads;
  const std::int64_t start = item.page * args.page_tokens;
  const std::int64_t blind_rows = std::max<std::int64_t>(0, start - sequence.first_position);
  const std::int64_t pairs = sequence.num_rows * group;
  for (std::int64_t kv_head = item.first_kv_head; kv_head < item.end_kv_head; ++kv_head) {
    for (std::int64_t pair = blind_rows * group; pair < pairs; pair += kMaxAttentionPairs) {
      kernels.attend_page(args,
                          {&sequence, kv_head, pair, std::min(kMaxAttentionPairs, pairs - pair)},
                          item.page, scratch);
    }
  }
}

void store_sequence(const AttentionArgs& args, const AttentionKernels& kernels,
                    const SequenceRows& sequence) {
  const auto row_bytes = kv_head_bytes(args.kv_format, 1, args.head_dim);
  for (std::int64_t r = 0; r < sequence.num_rows; ++r) {
    const std::int64_t position = sequence.first_position + r;
    const std::int64_t slot = position % args.page_tokens;
    std::byte* page = sequence.pages[static_cast<std::size_t>(position / args.page_tokens)];
    if (page == nullptr) {
      continue;
    }
    for (std::int64_t head = 0; head < args.kv_heads; ++head) {
      const std::int64_t from = (sequence.first_row + r) * args.row_stride + head * args.head_dim;
      const std::int64_t key = (head * args.page_tokens + slot) * row_bytes;
      const std::int64_t value = key + args.kv_heads * args.page_tokens * row_bytes;
      kernels.store_row(args.key + from, args.head_dim, args.kv_format.type, page + key);
      kernels.store_row(args.value + from, args.head_dim, args.kv_format.type, page + value);
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

void attention_partials(const AttentionArgs& args, const AttentionKernels& kernels,
                        ThreadPool& pool, const Scratch& scratch) {
  const auto items = make_page_items(args);
  pool.parallel_for(static_cast<std::int64_t>(items.size()), [&](std::int64_t index, int worker) {
    attend_page(args, kernels, items[static_cast<std::size_t>(index)], scratch.of_worker(worker));
  });
}

}  // namespace stagecoach::device
