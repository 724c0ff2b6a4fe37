#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "offload/kv_pages.hpp"
#include "offload/layer_image.hpp"
#include "offload/tier.hpp"
#include "stage/policy.hpp"
#include "stage/stage_shape.hpp"

namespace stagecoach::stage {

/// Hidden buffers of a stage: one received into, one computed in, one sent from.
inline constexpr std::int32_t kHiddenRing = 3;
/// Buffers that GPU batches use in turn: one is loaded or stored while another is computed with.
inline constexpr std::int32_t kTurns = 2;
/// Buffers between disk and a device that disk reads cannot reach, and their size.
inline constexpr std::int32_t kWeightStagings = 4;
inline constexpr std::size_t kWeightStagingBytes = std::size_t{8} << 20;

/// The weights of a stage's layers.
struct WeightPlan {
  offload::LayerImage image;  ///< of each layer
  offload::WeightCut cut;
  /// Parts of a layer that are computed, and so streamed, one after the other: the whole layer, or
  /// attention and MLP.
  std::vector<offload::ByteRange> units;
  std::int64_t buffers = 0;  ///< for streamed units on the device; 0: all weights live there
  std::size_t buffer_bytes = 0;
  std::int32_t stagings = 0;
  bool pinned = false;
  /// Packed matrices of a unit are widened, once a visit, where a GPU batch has more rows than
  /// this; the bytes of the largest unit's, 0: never.
  std::int64_t packed_product_rows = 0;
  std::size_t wide_bytes = 0;

  /// The bytes of a unit that are not on the device: what lies in a buffer, from its start.
  [[nodiscard]] offload::ByteRange streamed(std::size_t unit) const;
  [[nodiscard]] offload::ByteRange from_cpu(std::size_t unit) const;
  [[nodiscard]] offload::ByteRange from_disk(std::size_t unit) const;
  [[nodiscard]] bool on_disk() const { return cut.cpu_end < image.size_bytes(); }
};

/// The KV cache: pages a layer, and pages of the buffers of one turn.
struct KvPlan {
  std::size_t page_bytes = 0;
  std::size_t key_bytes = 0;  ///< of a page: its first bytes
  offload::TierCounts pools;
  std::int64_t open_slots = 0;
  std::int64_t staged = 0;
  std::int64_t cpu_staged = 0;
  std::int64_t passing = 0;
  std::int64_t partials = 0;
  std::int64_t partial_floats = 0;  ///< of one page of a sequence of one row
  /// Sequences of a GPU batch that sparse attention may find in several places, and what each takes
  /// at most: scores of all positions, and the values that go to the device (none where the CPU
  /// attends).
  std::int64_t splits = 0;
  std::size_t score_bytes = 0;
  std::size_t value_bytes = 0;

  [[nodiscard]] bool offloaded() const { return pools.cpu + pools.disk > 0; }
};

/// The activations between layers.
struct HiddenPlan {
  std::vector<offload::Tier> tiers;  ///< of each GPU batch of a block, device first, disk last
  std::int64_t device_rows = 0;      ///< of each buffer of the ring
  std::int64_t cpu_rows = 0;
  std::int64_t disk_batches = 0;
  bool work = false;            ///< batches are loaded to be computed with
  bool wire_in_cpu = false;     ///< what comes and goes over the wire passes through DRAM
  std::size_t batch_bytes = 0;  ///< of a batch on disk or in staging, page-aligned
};

/// Everything that is decided about a stage before it runs: what schedule, engine, memory report
/// and simulation all go by.
struct StagePlan {
  StageShape shape;
  Policy policy;
  ScheduleKind schedule = ScheduleKind::rolling;
  bool overlap = true;
  bool direct = true;           ///< disk reads can go to the device's memory
  bool wire_on_device = false;  ///< the transport takes activations from the device's memory
  bool pin_copied = false;      ///< see PlanOptions
  bool cpu_attention = false;   ///< for pages outside the device, where a sequence has one row
  WeightPlan weights;
  KvPlan kv;
  HiddenPlan hidden;
  std::int32_t workspaces = 1;

  [[nodiscard]] bool phases() const { return schedule == ScheduleKind::flexgen; }
};

/// What about a machine decides a plan, beside the policy.
struct PlanOptions {
  ScheduleKind schedule = ScheduleKind::rolling;
  bool overlap = true;
  bool direct = true;
  /// comm::Transport::hidden_in_device_memory(), where the device is a GPU.
  bool wire_on_device = false;
  /// Whatever in DRAM is copied to or from the device is pinned as far as the budget goes, not
  /// weights alone.
  bool pin_copied = false;
  /// device::Device::packed_product_rows()
  std::int64_t packed_product_rows = std::numeric_limits<std::int64_t>::max();
};

/// The plan with `kv_pages` pages a layer and `weight_buffers` buffers (if any weights are
/// streamed). `longest_pages`: pages a layer of the longest request. A pure function.
StagePlan make_plan(const StageShape& shape, const Policy& policy, const PlanOptions& options,
                    std::int64_t longest_pages, std::int64_t kv_pages, std::int64_t weight_buffers);

/// Bytes of one KV page of `shape` (K and V of page_tokens tokens in one layer); where some are on
/// disk, whole disk pages.
std::size_t kv_page_bytes(const StageShape& shape, bool on_disk);
/// Bytes of the values that a sequence of one row selects of `earlier` positions, at most.
std::int64_t selected_value_bytes(const StageShape& shape, std::int64_t earlier);
/// Rows of logits that the head works on at once.
std::int64_t head_chunk_rows(const StageShape& shape);
/// Bytes of the operations' workspace (see decoder_layer.hpp).
std::size_t workspace_bytes(const StageShape& shape);
/// Bytes of `rows` rows of activations.
std::size_t hidden_bytes(const StageShape& shape, std::int64_t rows);

}  // namespace stagecoach::stage
