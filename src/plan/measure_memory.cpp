#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <vector>

#include "device/host/thread_pool.hpp"
#include "plan/measure_cases.hpp"

namespace stagecoach::plan {
namespace {

/// Reads every byte once, with so many sums that only memory limits it. Host devices need AVX2 too.
__attribute__((target("avx2"))) std::uint64_t read_all(std::span<const std::byte> bytes) {
  constexpr std::size_t kSums = 8;
  __m256i sums[kSums] = {};
  const auto* from = reinterpret_cast<const __m256i*>(bytes.data());
  const std::size_t count = bytes.size() / sizeof(__m256i);
  for (std::size_t i = 0; i + kSums <= count; i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k) {
      sums[k] = _mm256_add_epi64(sums[k], _mm256_load_si256(from + i + k));
    }
  }
  std::uint64_t total = 0;
  for (const auto& sum : sums) {
    total += static_cast<std::uint64_t>(_mm256_extract_epi64(sum, 0));
  }
  return total;
}

}  // namespace

/// All threads of all ranks read, so their sum is what the node's DRAM gives.
void measure_memory(MeasureKit& kit, NodeProfile& profile) {
  device::ThreadPool pool(kit.options().threads);
  const auto parts = static_cast<std::size_t>(pool.threads());
  const auto part_bytes = kit.dram().size() / parts / kPageBytes * kPageBytes;
  std::vector<std::uint64_t> sums(parts);
  const double seconds = kit.seconds_of(
      "DRAM", {.enqueue =
                   [&](std::int64_t /*piece*/) {
                     pool.parallel_for(pool.threads(), [&](std::int64_t index, int /*worker*/) {
                       const auto part = static_cast<std::size_t>(index);
                       // Kept, so that the compiler does not leave the reading out.
                       sums[part] += read_all(kit.dram().subspan(part * part_bytes, part_bytes));
                     });
                   },
               .finish = [] {}});
  const auto bytes = static_cast<double>(parts * part_bytes);
  // Other processes only take away from it.
  profile.memory_bytes_per_second =
      std::max(profile.memory_bytes_per_second, kit.sum_of_node("DRAM", bytes / seconds));
  kit.tell(fmt::format("DRAM: {:.2f} GB/s, all of this node's stages reading",
                       profile.memory_bytes_per_second * 1e-9));
}

}  // namespace stagecoach::plan
