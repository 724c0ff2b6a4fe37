#include <fmt/format.h>

#include <numeric>
#include <vector>

#include "device/host/thread_pool.hpp"
#include "plan/measure_cases.hpp"

namespace stagecoach::plan {
namespace {

constexpr std::size_t kSums = 8;
constexpr std::size_t kBlock = kSums * sizeof(std::uint64_t);  // a cache line
// Further ahead than processors look by themselves, and past the ends of pages, where they stop:
// attention does the same.
constexpr std::size_t kAhead = 4096;

/// Reads every byte once, with so many sums that only memory limits it.
std::uint64_t read_all(std::span<const std::byte> bytes) {
  std::uint64_t sums[kSums] = {};
  const auto* from = reinterpret_cast<const std::uint64_t*>(bytes.data());
  for (std::size_t at = 0; at + kBlock <= bytes.size(); at += kBlock, from += kSums) {
    __builtin_prefetch(reinterpret_cast<const char*>(from) + kAhead);
    for (std::size_t k = 0; k < kSums; ++k) {
      sums[k] += from[k];
    }
  }
  return std::accumulate(std::begin(sums), std::end(sums), std::uint64_t{0});
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
  profile.memory_bytes_per_second = kit.sum_of_node("DRAM", bytes / seconds);
  kit.tell(fmt::format("DRAM: {:.2f} GB/s, all of this node's stages reading",
                       profile.memory_bytes_per_second * 1e-9));
}

}  // namespace stagecoach::plan
