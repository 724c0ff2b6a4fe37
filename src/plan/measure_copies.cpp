#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.hpp"
#include "plan/measure_cases.hpp"

namespace stagecoach::plan {
namespace {

/// Places in DRAM and on the device between which pieces are copied in turns.
class Places {
 public:
  explicit Places(const MeasureKit& kit)
      : kit_(kit),
        bytes_(kit.sizes().copy_bytes),
        count_(std::min(kit.data_bytes(), kit.dram().size()) / bytes_ / 2 * 2) {
    STAGECOACH_CHECK(count_ > 0, "too little memory to measure copies");
  }

  [[nodiscard]] double bytes() const { return static_cast<double>(bytes_); }

  void to_device(std::int64_t piece) const {
    kit_.device().copy_from_host(kit_.copies(0), kit_.data() + at(piece), dram(piece), bytes_);
  }
  void from_device(std::int64_t piece) const {
    kit_.device().copy_to_host(kit_.copies(1), dram(piece), kit_.data() + at(piece), bytes_);
  }
  /// One way uses the even places and the other the odd ones.
  void both_ways(std::int64_t piece) const {
    to_device(2 * piece);
    from_device(2 * piece + 1);
  }

 private:
  [[nodiscard]] std::size_t at(std::int64_t piece) const {
    return static_cast<std::size_t>(piece) % count_ * bytes_;
  }
  [[nodiscard]] std::byte* dram(std::int64_t piece) const { return kit_.dram().data() + at(piece); }

  const MeasureKit& kit_;
  std::size_t bytes_;
  std::size_t count_;
};

struct OneWay {
  double to_device = 0;
  double from_device = 0;
};

OneWay one_way(const MeasureKit& kit, const Places& places, const char* what) {
  return {.to_device = kit.rate_of(
              fmt::format("{} copies to the device", what), places.bytes(),
              MeasureKit::on(kit.copies(0), [&](auto piece) { places.to_device(piece); })),
          .from_device = kit.rate_of(
              fmt::format("{} copies from the device", what), places.bytes(),
              MeasureKit::on(kit.copies(1), [&](auto piece) { places.from_device(piece); }))};
}

double both_ways(const MeasureKit& kit, const Places& places) {
  return kit.rate_of("copies both ways", 2 * places.bytes(),
                     {.enqueue = [&](auto piece) { places.both_ways(piece); },
                      .finish =
                          [&] {
                            kit.copies(0).record().wait();
                            kit.copies(1).record().wait();
                          }});
}

}  // namespace

void measure_copies(MeasureKit& kit, NodeProfile& profile) {
  const Places places(kit);
  auto& rates = profile.copies;
  const auto pageable = one_way(kit, places, "pageable");
  rates.to_device_pageable = pageable.to_device;
  rates.from_device_pageable = pageable.from_device;
  const auto pinned_memory = kit.device().pin(kit.dram());
  if (pinned_memory == nullptr) {
    kit.note("the system refuses to pin memory: what stands for pinned copies is pageable");
  }
  const auto pinned = one_way(kit, places, "pinned");
  rates.to_device_pinned = pinned.to_device;
  rates.from_device_pinned = pinned.from_device;
  rates.both_ways = kit.possible_sum("copies both ways", both_ways(kit, places), pinned.to_device,
                                     pinned.from_device);
  kit.tell(fmt::format(
      "copies: pinned {:.2f} to and {:.2f} from the device, pageable {:.2f} and "
      "{:.2f}, both ways {:.2f} GB/s",
      rates.to_device_pinned * 1e-9, rates.from_device_pinned * 1e-9,
      rates.to_device_pageable * 1e-9, rates.from_device_pageable * 1e-9, rates.both_ways * 1e-9));
}

}  // namespace stagecoach::plan
