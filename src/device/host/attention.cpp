#include "device/host/attention.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "device/host/attention_layout.hpp"

namespace stagecoach::device {
namespace {

std::vector<AttentionItem> make_items(const AttentionArgs& args) {
  const std::int64_t group = args.heads / args.kv_heads;
  std::vector<AttentionItem> items;
  for (const auto& sequence : args.sequences) {
    const std::int64_t pairs = sequence.num_rows * group;
    const std::int64_t most = sequence.sparse ? kMaxSparsePairs : kMaxAttentionPairs;
    for (std::int64_t kv_head = 0; kv_head < args.kv_heads; ++kv_head) {
      for (std::int64_t pair = 0; pair < pairs; pair += most) {
        items.push_back({&sequence, kv_head, pair, std::min(most, pairs - pair)});
      }
    }
  }
  return items;
}

/// Some KV heads of one page, which every row that sees it looks at.
struct PageItem {
  const SequenceRows* sequence = nullptr;
  std::int64_t page = 0;
  std::int64_t first_kv_head = 0;
  std::int64_t end_kv_head = 0;
};

// KV heads of a page that are worth waking a worker for. They lie side by side, as their results
// do, so pages are read and results written in order.
constexpr std::int64_t kHeadsAtOnce = 8;

// Pages that `wanted(sequence, page)` and that some row sees.
template <typename Wanted>
std::vector<PageItem> make_page_items(const AttentionArgs& args, Wanted wanted) {
  std::vector<PageItem> items;
  for (const auto& sequence : args.sequences) {
    const std::int64_t tokens =
        sequence.num_rows == 0 ? 0 : std::int64_t{sequence.first_position} + sequence.num_rows;
    for (std::size_t page = 0; page < sequence.pages.size(); ++page) {
      const auto index = static_cast<std::int64_t>(page);
      if (index * args.page_tokens >= tokens || sequence.pages[page] == nullptr ||
          !wanted(sequence, page)) {
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

// The only row of a sequence looks at a page.
void score_page(const AttentionArgs& args, const AttentionKernels& kernels, const PageItem& item,
                float* scratch) {
  const std::int64_t group = args.heads / args.kv_heads;
  for (std::int64_t kv_head = item.first_kv_head; kv_head < item.end_kv_head; ++kv_head) {
    for (std::int64_t pair = 0; pair < group; pair += kMaxAttentionPairs) {
      kernels.score_page(args,
                         {item.sequence, kv_head, pair, std::min(kMaxAttentionPairs, group - pair)},
                         item.page, scratch);
    }
  }
}

std::byte* page_of(const AttentionArgs& args, const SequenceRows& sequence, std::int64_t position) {
  return sequence.pages[static_cast<std::size_t>(position / args.page_tokens)];
}

void store_row(const AttentionArgs& args, const AttentionKernels& kernels,
               const SequenceRows& sequence, std::int64_t row) {
  const std::int64_t position = sequence.first_position + row;
  std::byte* page = page_of(args, sequence, position);
  if (page == nullptr) {
    return;
  }
  const std::int64_t slot = position % args.page_tokens;
  for (std::int64_t head = 0; head < args.kv_heads; ++head) {
    const std::int64_t from = (sequence.first_row + row) * args.row_stride + head * args.head_dim;
    kernels.store_run(args.kv_format, args.key + from, args.head_dim,
                      kv_run(args, page, head, slot));
    kernels.store_run(args.kv_format, args.value + from, args.head_dim,
                      kv_run(args, page, args.kv_heads + head, slot));
  }
}

/// Some rows of a sequence.
struct RowsItem {
  const SequenceRows* sequence = nullptr;
  std::int64_t first = 0;
  std::int64_t end = 0;
};

std::vector<RowsItem> make_rows_items(const AttentionArgs& args) {
  constexpr std::int64_t kRowsAtOnce = 8;
  std::vector<RowsItem> items;
  for (const auto& sequence : args.sequences) {
    for (std::int64_t row = 0; row < sequence.num_rows; row += kRowsAtOnce) {
      items.push_back(
          {&sequence, row, std::min<std::int64_t>(row + kRowsAtOnce, sequence.num_rows)});
    }
  }
  return items;
}

// Calls `body(sequence, index, worker)` for each of `count` heads of the sequences that `wanted`.
template <typename Wanted, typename Body>
void for_heads(const AttentionArgs& args, std::int64_t count, ThreadPool& pool, Wanted wanted,
               Body body) {
  std::vector<const SequenceRows*> chosen;
  for (const auto& sequence : args.sequences) {
    if (wanted(sequence)) {
      chosen.push_back(&sequence);
    }
  }
  const auto items = static_cast<std::int64_t>(chosen.size()) * count;
  pool.parallel_for(items, [&](std::int64_t index, int worker) {
    body(*chosen[static_cast<std::size_t>(index / count)], index % count, worker);
  });
}

bool has_scores(const SequenceRows& sequence) { return sequence.scores != nullptr; }
bool has_values(const SequenceRows& sequence) { return sequence.values != nullptr; }

std::int64_t score_stride(const AttentionArgs& args, const SequenceRows& sequence) {
  return static_cast<std::int64_t>(sequence.pages.size()) * args.page_tokens;
}

// Whether some query head of a KV head keeps an earlier position.
bool is_kept(const AttentionArgs& args, const SequenceRows& sequence, std::int64_t kv_head,
             std::int64_t position) {
  const std::int64_t group = args.heads / args.kv_heads;
  const std::int64_t stride = score_stride(args, sequence);
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    if (keeps(sequence.selection[head], sequence.scores[head * stride + position], position)) {
      return true;
    }
  }
  return false;
}

// The records of one KV head's values.
class Records {
 public:
  Records(const AttentionArgs& args, const SequenceRows& sequence, std::int64_t kv_head)
      : size_(value_record_bytes(args.kv_format, args.head_dim)),
        count_(value_records(args.sparsity, sequence.first_position, args.heads / args.kv_heads)),
        data_(sequence.values + kv_head * count_ * size_) {}

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::byte* operator[](std::int64_t index) const { return data_ + index * size_; }
  [[nodiscard]] std::int32_t position(std::int64_t index) const {
    std::int32_t position = 0;
    std::memcpy(&position, (*this)[index], sizeof(position));
    return position;
  }
  void set_position(std::int64_t index, std::int32_t position) const {
    std::memcpy((*this)[index], &position, sizeof(position));
  }

 private:
  std::int64_t size_;
  std::int64_t count_;
  std::byte* data_;
};

constexpr std::int64_t kRecordHead = sizeof(std::int32_t);

void write_record(const KvRun& run, std::byte* record) {
  std::memcpy(record + kRecordHead, run.params, static_cast<std::size_t>(run.params_bytes));
  std::memcpy(record + kRecordHead + run.params_bytes, run.numbers,
              static_cast<std::size_t>(run.numbers_bytes));
}

void read_record(const std::byte* record, const KvRun& run) {
  std::memcpy(run.params, record + kRecordHead, static_cast<std::size_t>(run.params_bytes));
  std::memcpy(run.numbers, record + kRecordHead + run.params_bytes,
              static_cast<std::size_t>(run.numbers_bytes));
}

KvRun value_run(const AttentionArgs& args, std::byte* page, std::int64_t kv_head,
                std::int64_t position) {
  return kv_run(args, page, args.kv_heads + kv_head, position % args.page_tokens);
}

void gather_head(const AttentionArgs& args, const SequenceRows& sequence, std::int64_t kv_head) {
  const Records records(args, sequence, kv_head);
  std::int64_t count = 0;
  for (std::int32_t position = 0; position < sequence.first_position; ++position) {
    std::byte* page = page_of(args, sequence, position);
    if (page != nullptr && is_kept(args, sequence, kv_head, position)) {
      write_record(value_run(args, page, kv_head, position), records[count]);
      records.set_position(count++, position);
    }
  }
  if (count < records.count()) {
    records.set_position(count, -1);
  }
}

void scatter_head(const AttentionArgs& args, const SequenceRows& sequence, std::int64_t kv_head) {
  const Records records(args, sequence, kv_head);
  for (std::int64_t i = 0; i < records.count() && records.position(i) >= 0; ++i) {
    std::byte* page = page_of(args, sequence, records.position(i));
    if (page != nullptr) {
      read_record(records[i], value_run(args, page, kv_head, records.position(i)));
    }
  }
}

}  // namespace

void store_kv(const AttentionArgs& args, const AttentionKernels& kernels, ThreadPool& pool) {
  const auto items = make_rows_items(args);
  pool.parallel_for(static_cast<std::int64_t>(items.size()),
                    [&](std::int64_t index, int /*worker*/) {
                      const auto& item = items[static_cast<std::size_t>(index)];
                      for (std::int64_t row = item.first; row < item.end; ++row) {
                        store_row(args, kernels, *item.sequence, row);
                      }
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
  const auto items = make_page_items(args, [](const SequenceRows& sequence, std::size_t page) {
    return !sequence.partials.empty() && sequence.partials[page] != nullptr;
  });
  pool.parallel_for(static_cast<std::int64_t>(items.size()), [&](std::int64_t index, int worker) {
    attend_page(args, kernels, items[static_cast<std::size_t>(index)], scratch.of_worker(worker));
  });
}

void attention_scores(const AttentionArgs& args, const AttentionKernels& kernels, ThreadPool& pool,
                      const Scratch& scratch) {
  const auto items = make_page_items(args, [](const SequenceRows& sequence, std::size_t /*page*/) {
    return has_scores(sequence);
  });
  pool.parallel_for(static_cast<std::int64_t>(items.size()), [&](std::int64_t index, int worker) {
    score_page(args, kernels, items[static_cast<std::size_t>(index)], scratch.of_worker(worker));
  });
}

void select_top(const AttentionArgs& args, const AttentionKernels& kernels, ThreadPool& pool,
                const Scratch& scratch) {
  for_heads(args, args.heads, pool, has_scores,
            [&](const SequenceRows& sequence, std::int64_t head, int worker) {
              const std::int64_t earlier = sequence.first_position;
              sequence.selection[head] = kernels.select_top(
                  sequence.scores + head * score_stride(args, sequence), earlier,
                  kept_positions(args.sparsity, earlier), scratch.of_worker(worker));
            });
}

void gather_values(const AttentionArgs& args, ThreadPool& pool) {
  for_heads(args, args.kv_heads, pool, has_values,
            [&](const SequenceRows& sequence, std::int64_t kv_head, int /*worker*/) {
              gather_head(args, sequence, kv_head);
            });
}

void scatter_values(const AttentionArgs& args, ThreadPool& pool) {
  for_heads(args, args.kv_heads, pool, has_values,
            [&](const SequenceRows& sequence, std::int64_t kv_head, int /*worker*/) {
              scatter_head(args, sequence, kv_head);
            });
}

}  // namespace stagecoach::device
