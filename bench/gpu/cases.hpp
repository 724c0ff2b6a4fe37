#pragma once

#include "gpu/workbench.hpp"

namespace stagecoach::bench::gpu {

/// What a kernel that is bound by memory should reach of a copy's rate, and a prefill of cuBLAS's.
inline constexpr double kAim = 0.85;

/// Bytes of rows of weights.
double weight_bytes(const PackFormat& format, std::int64_t rows, std::int64_t columns);

/// One of the cases below; each takes its own memory and leaves lines in the table.
using Case = void (*)(Workbench&);

void measure_rows(Workbench& bench);       ///< layer norm, embedding, widening
void measure_products(Workbench& bench);   ///< few rows, packed weights and f16
void measure_attention(Workbench& bench);  ///< store, decode, merge, prefill
void measure_sampling(Workbench& bench);
void measure_copies(Workbench& bench);  ///< between host and device
void measure_layers(Workbench& bench);  ///< whole layers of OPT-6.7B and OPT-30B

/// Pages of sequences, full of numbers, and the rows that are computed with them.
class Cache {
 public:
  Cache(Workbench& bench, const device::KvFormat& format, std::int64_t heads,
        std::int64_t sequences, std::int64_t tokens);

  /// Attention of the last `rows` tokens of every sequence; query, key and value lie side by side.
  [[nodiscard]] device::AttentionArgs args(float* qkv, float* out, std::int64_t rows) const;
  /// Bytes of all pages.
  [[nodiscard]] double bytes() const;

 private:
  [[nodiscard]] std::int64_t pages_each() const;
  [[nodiscard]] std::int64_t page_bytes() const;

  device::KvFormat format_;
  std::int64_t heads_;
  std::int64_t head_dim_;
  std::int64_t sequences_;
  std::int64_t tokens_;
  std::int64_t page_tokens_;
  std::byte* pages_;
};

}  // namespace stagecoach::bench::gpu
