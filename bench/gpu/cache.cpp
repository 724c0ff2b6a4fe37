#include <cmath>

#include "gpu/cases.hpp"

namespace stagecoach::bench::gpu {

Cache::Cache(Workbench& bench, const device::KvFormat& format, std::int64_t heads,
             std::int64_t sequences, std::int64_t tokens)
    : format_(format),
      heads_(heads),
      head_dim_(bench.sizes().head_dim),
      sequences_(sequences),
      tokens_(tokens),
      page_tokens_(bench.settings().page_tokens),
      pages_(bench.packed_bytes(sequences * pages_each() * page_bytes())) {}

std::int64_t Cache::pages_each() const { return (tokens_ + page_tokens_ - 1) / page_tokens_; }

std::int64_t Cache::page_bytes() const {
  return 2 * heads_ * device::kv_head_bytes(format_, page_tokens_, head_dim_);
}

double Cache::bytes() const {
  return static_cast<double>(sequences_ * tokens_ / page_tokens_ * page_bytes());
}

device::AttentionArgs Cache::args(float* qkv, float* out, std::int64_t rows) const {
  const auto width = heads_ * head_dim_;
  device::AttentionArgs args;
  args.query = qkv;
  args.key = qkv + width;
  args.value = qkv + 2 * width;
  args.row_stride = 3 * width;
  args.out = out;
  args.heads = heads_;
  args.kv_heads = heads_;
  args.head_dim = head_dim_;
  args.page_tokens = page_tokens_;
  args.scale = 1 / std::sqrt(static_cast<float>(head_dim_));
  args.kv_format = format_;
  for (std::int64_t s = 0; s < sequences_; ++s) {
    auto& sequence = args.sequences.emplace_back();
    sequence.first_row = static_cast<std::int32_t>(s * rows);
    sequence.num_rows = static_cast<std::int32_t>(rows);
    sequence.first_position = static_cast<std::int32_t>(tokens_ - rows);
    for (std::int64_t p = 0; p < pages_each(); ++p) {
      sequence.pages.push_back(pages_ + (s * pages_each() + p) * page_bytes());
    }
  }
  return args;
}

}  // namespace stagecoach::bench::gpu
