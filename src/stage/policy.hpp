#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "offload/tier.hpp"
#include "stage/batch_shape.hpp"

namespace stagecoach::stage {

/// Where a stage keeps what, in per cent (FlexGen's six numbers); the rest is on disk.
struct Percent {
  double weights_device = 100;
  double weights_cpu = 0;
  double cache_device = 100;
  double cache_cpu = 0;
  double hidden_device = 100;
  double hidden_cpu = 0;

  [[nodiscard]] offload::TierShares weights() const {
    return {weights_device / 100, weights_cpu / 100};
  }
  [[nodiscard]] offload::TierShares cache() const { return {cache_device / 100, cache_cpu / 100}; }
  [[nodiscard]] offload::TierShares hidden() const {
    return {hidden_device / 100, hidden_cpu / 100};
  }
  friend bool operator==(const Percent&, const Percent&) = default;
};

enum class Switch { off, on, automatic };

/// How one stage uses its machine. Sizes are budgets; 0: what is free, shared out.
struct Policy {
  Percent percent;
  std::size_t device_mem_bytes = 0;
  std::size_t cpu_mem_bytes = 0;
  std::size_t pinned_mem_bytes = 0;  ///< part of cpu_mem that may be locked in DRAM
  std::size_t disk_mem_bytes = 0;
  std::string offload_dir;  ///< for the files of cache and activations; needed when they go to disk
  Switch pin_weights = Switch::automatic;
  Switch cpu_attention = Switch::automatic;
  Switch widen_weights = Switch::automatic;  ///< packed ones, once a visit; by itself: as the
                                             ///< device is faster
  std::int64_t weight_buffers = 0;  ///< layers of streamed weights on the device; 0: 2 or 3
  friend bool operator==(const Policy&, const Policy&) = default;
};

/// Six numbers in one text, "20 80 0 100 100 0". ConfigError names `flag`.
Percent parse_percent(const std::string& text, const std::string& flag);
std::string format_percent(const Percent& percent);

/// ConfigError naming the flag that makes no sense by itself or beside another.
void validate(const Policy& policy);

/// How a stage's visits are ordered.
enum class ScheduleKind {
  rolling,  ///< event-driven; prompts in pieces; places refilled sequence by sequence
  zigzag,   ///< the paper's block: prefilled whole, run to its end, then the next; event-driven
  row,      ///< the baselines' order: one GPU batch from start to end, then the next
  flexgen   ///< the zig-zag block as FlexGen runs it: synchronised after every phase and GPU batch
};

/// ConfigError names `flag` and the names there are.
ScheduleKind parse_schedule(const std::string& text, const std::string& flag);
std::string to_string(ScheduleKind kind);

/// The batch shape of a job with this schedule: when blocks are refilled, how large they are (`row`
/// has one GPU batch a block), and blocks enough to fill the pipeline where inner_iterations is 0.
BatchShape shape_for(BatchShape batch, ScheduleKind kind, int stages);

}  // namespace stagecoach::stage
