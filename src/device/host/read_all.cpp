#include "device/host/read_all.hpp"

#include <immintrin.h>

#include <numeric>
#include <vector>

#include "base/aligned_memory.hpp"

namespace stagecoach::device {

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

std::uint64_t read_all(std::span<const std::byte> bytes, ThreadPool& pool) {
  const auto parts = static_cast<std::size_t>(pool.threads());
  const std::size_t part_bytes = bytes.size() / parts / kPageBytes * kPageBytes;
  std::vector<std::uint64_t> sums(parts);
  pool.parallel_for(pool.threads(), [&](std::int64_t index, int /*worker*/) {
    const auto part = static_cast<std::size_t>(index);
    const auto first = part * part_bytes;
    sums[part] =
        read_all(bytes.subspan(first, part + 1 == parts ? bytes.size() - first : part_bytes));
  });
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

}  // namespace stagecoach::device
