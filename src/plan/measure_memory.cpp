#include <fmt/format.h>

#include <algorithm>

#include "device/host/read_all.hpp"
#include "plan/measure_cases.hpp"

namespace stagecoach::plan {
/// All threads of all ranks read, so their sum is what the node's DRAM gives.
void measure_memory(MeasureKit& kit, NodeProfile& profile) {
  device::ThreadPool pool(kit.options().threads);
  std::uint64_t sum = 0;
  const double seconds = kit.seconds_of("DRAM", {.enqueue =
                                                     [&](std::int64_t /*piece*/) {
                                                       // Kept, so that the reading is.
                                                       sum += device::read_all(kit.dram(), pool);
                                                     },
                                                 .finish = [] {}});
  const auto bytes = static_cast<double>(kit.dram().size());
  // Other processes only take away from it.
  profile.memory_bytes_per_second =
      std::max(profile.memory_bytes_per_second, kit.sum_of_node("DRAM", bytes / seconds));
  kit.tell(fmt::format("DRAM: {:.2f} GB/s, all of this node's stages reading",
                       profile.memory_bytes_per_second * 1e-9));
}

}  // namespace stagecoach::plan
