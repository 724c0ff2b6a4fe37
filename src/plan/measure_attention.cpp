#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "plan/measure_cases.hpp"

namespace stagecoach::plan {
namespace {

constexpr std::pair<device::KvType, const char*> kCaches[] = {{device::KvType::f16, "f16"},
                                                              {device::KvType::f32, "f32"},
                                                              {device::KvType::int8, "int8"},
                                                              {device::KvType::int4, "int4"}};

/// Sequences in memory that begins with their rows and goes on with partial results and pages.
class Sequences {
 public:
  Sequences(const MeasureSizes& sizes, const device::KvFormat& format, std::int64_t page_tokens)
      : sizes_(sizes), format_(format), page_tokens_(page_tokens) {}

  [[nodiscard]] std::int64_t pages() const {
    return (sizes_.context + page_tokens_ - 1) / page_tokens_;
  }
  [[nodiscard]] std::int64_t page_bytes() const {
    return 2 * sizes_.kv_heads * device::kv_head_bytes(format_, page_tokens_, sizes_.head_dim);
  }
  [[nodiscard]] std::int64_t row_floats() const {
    return (sizes_.heads + 2 * sizes_.kv_heads) * sizes_.head_dim;
  }
  [[nodiscard]] std::int64_t partial_floats() const {
    return device::attention_partial_floats(1, sizes_.heads, sizes_.head_dim);
  }
  /// As many as memory has room for.
  [[nodiscard]] std::int64_t fitting(std::size_t bytes, bool partials) const {
    const auto each = pages() * (page_bytes() + (partials ? 4 * partial_floats() : 0));
    STAGECOACH_CHECK(each <= static_cast<std::int64_t>(bytes), "a sequence of {} bytes in {}", each,
                     bytes);
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(bytes) / each, 1, sizes_.sequences);
  }

  /// Query, key and value side by side; each of `count` sequences with `rows` rows, the last of
  /// `tokens`. `partials` may be null.
  [[nodiscard]] device::AttentionArgs args(float* qkv, float* out, std::byte* first_page,
                                           float* partials, std::int64_t count, std::int64_t rows,
                                           std::int64_t tokens) const {
    device::AttentionArgs args{.query = qkv,
                               .key = qkv + sizes_.heads * sizes_.head_dim,
                               .value = qkv + (sizes_.heads + sizes_.kv_heads) * sizes_.head_dim,
                               .row_stride = row_floats(),
                               .out = out,
                               .heads = sizes_.heads,
                               .kv_heads = sizes_.kv_heads,
                               .head_dim = sizes_.head_dim,
                               .page_tokens = page_tokens_,
                               .scale = 1.0f / std::sqrt(static_cast<float>(sizes_.head_dim)),
                               .kv_format = format_};
    for (std::int64_t i = 0; i < count; ++i) {
      device::SequenceRows sequence{.first_row = static_cast<std::int32_t>(i * rows),
                                    .num_rows = static_cast<std::int32_t>(rows),
                                    .first_position = static_cast<std::int32_t>(tokens - rows)};
      for (std::int64_t p = 0; p < pages(); ++p) {
        const auto page = i * pages() + p;
        sequence.pages.push_back(first_page + page * page_bytes());
        if (partials != nullptr) {
          sequence.partials.push_back(partials + page * partial_floats());
        }
      }
      args.sequences.push_back(std::move(sequence));
    }
    return args;
  }

 private:
  const MeasureSizes& sizes_;
  device::KvFormat format_;
  std::int64_t page_tokens_;
};

double device_rate(const MeasureKit& kit, const char* name, device::KvType type,
                   std::int64_t page_tokens) {
  const Sequences sequences(kit.sizes(), type, page_tokens);
  const auto count = sequences.fitting(kit.data_bytes(), false);
  float* const qkv = kit.work();
  const auto args = sequences.args(qkv, qkv + count * sequences.row_floats(), kit.data(), nullptr,
                                   count, 1, kit.sizes().context);
  return kit.rate_of(fmt::format("attention to {}", name),
                     static_cast<double>(count * sequences.pages() * sequences.page_bytes()),
                     MeasureKit::on(kit.compute(), [&](std::int64_t /*piece*/) {
                       kit.device().attention(kit.compute(), args);
                     }));
}

/// Sequences in DRAM, and where their rows, partial results and pages lie there.
struct InDram {
  InDram(const MeasureKit& kit, const Sequences& sequences) {
    const auto memory = kit.dram();
    const auto row_bytes = static_cast<std::size_t>(sequences.row_floats()) * sizeof(float);
    const auto rows_bytes = static_cast<std::size_t>(kit.sizes().sequences) * row_bytes;
    STAGECOACH_CHECK(rows_bytes < memory.size(), "too little DRAM to measure attention");
    count = sequences.fitting(memory.size() - rows_bytes - kPageBytes, true);
    rows = reinterpret_cast<float*>(memory.data());
    partials = rows + kit.sizes().sequences * sequences.row_floats();
    const auto partials_bytes =
        static_cast<std::size_t>(count * sequences.pages() * sequences.partial_floats()) *
        sizeof(float);
    pages = memory.data() + round_up(rows_bytes + partials_bytes, kPageBytes);
  }
  std::int64_t count = 0;
  float* rows = nullptr;
  float* partials = nullptr;
  std::byte* pages = nullptr;
};

double cpu_rate(const MeasureKit& kit, const char* name, device::KvType type,
                std::int64_t page_tokens) {
  const Sequences sequences(kit.sizes(), type, page_tokens);
  const InDram memory(kit, sequences);
  const auto args = sequences.args(memory.rows, nullptr, memory.pages, memory.partials,
                                   memory.count, 1, kit.sizes().context);
  return kit.rate_of(fmt::format("attention to {} on the CPU", name),
                     static_cast<double>(memory.count * sequences.pages() * sequences.page_bytes()),
                     MeasureKit::on(kit.cpu_stream(), [&](std::int64_t /*piece*/) {
                       kit.cpu().attention_partials(kit.cpu_stream(), args);
                     }));
}

/// A row of each sequence, now here and now there in its pages.
double store_rate(const MeasureKit& kit, const char* name, device::KvType type) {
  const auto& sizes = kit.sizes();
  const Sequences sequences(sizes, type, sizes.page_tokens.front());
  const InDram memory(kit, sequences);
  auto args = sequences.args(memory.rows, nullptr, memory.pages, nullptr, memory.count, 1, 1);
  constexpr std::int64_t kStride = 37;  // a page or more on
  return kit.rate_of(fmt::format("storing {}", name),
                     static_cast<double>(memory.count * 2 * sizes.kv_heads * sizes.head_dim * 4),
                     MeasureKit::on(kit.cpu_stream(), [&](std::int64_t piece) {
                       for (auto& sequence : args.sequences) {
                         sequence.first_position =
                             static_cast<std::int32_t>(piece * kStride % sizes.context);
                       }
                       kit.cpu().store_kv(kit.cpu_stream(), args);
                     }));
}

/// The last rows of a prompt, of one sequence after the other.
double prompt_rate(const MeasureKit& kit) {
  const auto& sizes = kit.sizes();
  const Sequences sequences(sizes, device::KvType::f16, sizes.page_tokens.front());
  const auto count = sequences.fitting(kit.data_bytes(), false);
  const auto rows = sizes.prompt_rows;
  float* const qkv = kit.work();
  auto args = sequences.args(qkv, qkv + rows * sequences.row_floats(), kit.data(), nullptr, count,
                             rows, sizes.context);
  const auto all = std::move(args.sequences);
  const auto before = sizes.context - rows;
  const auto attended = rows * before + rows * (rows + 1) / 2;
  return kit.rate_of(
      "attention of prompts",
      4.0 * static_cast<double>(sizes.heads * sizes.head_dim) * static_cast<double>(attended),
      MeasureKit::on(kit.compute(), [&](std::int64_t piece) {
        auto one = args;
        one.sequences = {all[static_cast<std::size_t>(piece) % all.size()]};
        one.sequences.front().first_row = 0;
        kit.device().attention(kit.compute(), std::move(one));
      }));
}

}  // namespace

void measure_attention(MeasureKit& kit, NodeProfile& profile) {
  for (const auto& [type, name] : kCaches) {
    std::vector<Curve::Point> on_device;
    std::vector<Curve::Point> on_cpu;
    for (const auto tokens : kit.sizes().page_tokens) {
      const auto size = static_cast<double>(tokens);
      on_device.push_back({size, device_rate(kit, name, type, tokens)});
      on_cpu.push_back({size, cpu_rate(kit, name, type, tokens)});
      kit.tell(fmt::format("attention, {}, pages of {}: device {:.2f}, CPU {:.2f} GB/s", name,
                           tokens, on_device.back().rate * 1e-9, on_cpu.back().rate * 1e-9));
    }
    auto& rates = profile.caches[type];
    rates.device = Curve(std::move(on_device));
    rates.cpu = Curve(std::move(on_cpu));
    rates.store = store_rate(kit, name, type);
    kit.tell(fmt::format("storing {}: {:.2f} GB/s of rows", name, rates.store * 1e-9));
  }
  // It comes from DRAM, which gives so much at least.
  const double at_least =
      kit.ranks_of_node() * profile.caches[device::KvType::f16].cpu.points().back().rate;
  profile.memory_bytes_per_second = std::max(profile.memory_bytes_per_second, at_least);
  profile.prompt_attention_flops = prompt_rate(kit);
  kit.tell(
      fmt::format("attention of prompts: {:.1f} GFLOP/s", profile.prompt_attention_flops * 1e-9));
}

}  // namespace stagecoach::plan
