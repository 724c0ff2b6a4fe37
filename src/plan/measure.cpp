#include "plan/measure.hpp"

#include <algorithm>

#include "base/aligned_memory.hpp"
#include "base/error.hpp"
#include "base/system.hpp"
#include "plan/measure_cases.hpp"

namespace stagecoach::plan {
namespace {

// With less there is no sequence of a large model in it.
constexpr std::size_t kLeastBytes = std::size_t{64} << 20;

}  // namespace

MeasureSizes quick_sizes() {
  MeasureSizes sizes;
  sizes.widths = {64, 128};
  sizes.rows = {1, 16};
  sizes.heads = 2;
  sizes.kv_heads = 2;
  sizes.head_dim = 64;
  sizes.vocab = 500;
  sizes.context = 40;
  sizes.sequences = 3;
  sizes.prompt_rows = 16;
  sizes.norm_rows = 8;
  sizes.sampled_rows = 2;
  sizes.device_data_bytes = std::size_t{256} << 10;
  sizes.dram_bytes = std::size_t{512} << 10;
  sizes.copy_bytes = std::size_t{16} << 10;
  sizes.disk_transfers = {std::size_t{4} << 10, std::size_t{64} << 10};
  sizes.disk_bytes = std::uint64_t{1} << 20;
  sizes.message_bytes = std::size_t{64} << 10;
  return sizes;
}

MeasureSizes fit_memory(MeasureSizes sizes, std::size_t device_bytes, std::size_t dram_bytes) {
  const auto fit = [](std::size_t& bytes, std::size_t most) {
    bytes = std::min(bytes, std::max(most, kLeastBytes) / kPageBytes * kPageBytes);
  };
  fit(sizes.device_data_bytes, device_bytes);
  fit(sizes.dram_bytes, dram_bytes);
  const auto both = std::min(sizes.device_data_bytes, sizes.dram_bytes);
  sizes.copy_bytes = std::min(sizes.copy_bytes, both / 2 / kPageBytes * kPageBytes);
  sizes.message_bytes = std::min(sizes.message_bytes, sizes.dram_bytes / 2);
  std::erase_if(sizes.disk_transfers, [&](std::size_t bytes) {
    return bytes > sizes.dram_bytes / 2 / kPageBytes * kPageBytes;
  });
  // Rows of sequences that attend in DRAM take a part of it.
  const auto row_bytes = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim * 4;
  sizes.sequences = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(sizes.dram_bytes / 8) / row_bytes, 1, sizes.sequences);
  return sizes;
}

device::ScratchShape measure_scratch(const MeasureSizes& sizes) {
  const auto largest = [](const std::vector<std::int64_t>& values) {
    return *std::max_element(values.begin(), values.end());
  };
  const auto smallest_page = *std::min_element(sizes.page_tokens.begin(), sizes.page_tokens.end());
  return {.max_in_features = largest(sizes.widths),
          .head_dim = sizes.head_dim,
          .page_tokens = largest(sizes.page_tokens),
          .vocab = sizes.vocab,
          .sparse_tokens = 0,
          .heads = sizes.heads,
          .kv_heads = sizes.kv_heads,
          .max_rows = std::max({largest(sizes.rows), sizes.sequences, sizes.prompt_rows,
                                sizes.norm_rows, sizes.sampled_rows}),
          .max_sequences = sizes.sequences,
          .longest_pages = (sizes.context + smallest_page - 1) / smallest_page};
}

std::size_t measure_device_bytes(const MeasureSizes& sizes) {
  return round_up(sizes.device_data_bytes, kPageBytes) + round_up(work_bytes(sizes), kPageBytes);
}

Measurement::Measurement(const MeasureOptions& options)
    : kit_(std::make_unique<MeasureKit>(options)) {}

Measurement::~Measurement() = default;

NodeProfile Measurement::run(comm::Transport& transport,
                             const std::function<void(const std::string&)>& tell) {
  auto& kit = *kit_;
  kit.meet(transport, tell);
  const auto& options = kit.options();
  NodeProfile profile;
  profile.host = kit.hosts()[static_cast<std::size_t>(transport.rank())];
  profile.description = options.device->description();
  profile.gpu = options.gpu;
  profile.stages = kit.ranks_of_node();
  profile.threads = options.threads;
  profile.cores = kit.cores_of_node();
  for (const auto measure_part :
       {measure_memory, measure_products, measure_attention, measure_rows, measure_copies,
        measure_disk, measure_steps, measure_links, measure_memory}) {
    measure_part(kit, profile);
  }
  return profile;
}

const std::vector<std::string>& Measurement::notes() const { return kit_->notes(); }

}  // namespace stagecoach::plan
