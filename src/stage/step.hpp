#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "offload/layer_image.hpp"

namespace stagecoach::stage {

/// What a step does. Adding one: give it a resource, its buffers and its cost in visit_builder.cpp,
/// and carry it out in one of *_steps.cpp, by way of engine.cpp.
enum class StepKind {
  receive_hidden,
  load_weights,   ///< DRAM -> weight buffer
  read_weights,   ///< store -> weight buffer, or its staging
  stage_weights,  ///< staging -> weight buffer
  load_hidden,    ///< activations to the device
  read_hidden,    ///< activations from disk into staging
  read_kv,        ///< full pages from disk, to where they are attended or staged
  load_kv,        ///< pages from DRAM to the device, or their keys alone
  widen_weights,  ///< a unit's packed matrices, for all GPU batches
  embed,
  attention_in,   ///< norm and the products that give query, key and value
  save_rows,      ///< query, key and value to DRAM
  store_kv,       ///< new K and V into their pages in DRAM
  write_kv,       ///< pages that are full now to disk
  score_kv,       ///< sparse attention: new K and V into the device's pages, and their scores
  save_scores,    ///< these to DRAM
  attend_cpu,     ///< a partial result for each page in DRAM; what split sequences select
  load_partials,  ///< these to the device
  attention,      ///< new K and V into the device's pages; all pages' results, in page order
  attention_out,
  mlp,
  store_hidden,  ///< activations from the device
  write_hidden,  ///< activations from staging to disk
  head,
  send_plan,
  send_hidden,
  send_tokens
};
inline constexpr int kStepKinds = static_cast<int>(StepKind::send_tokens) + 1;

/// Queues. Steps of one resource begin in the order of the schedule; resources run beside each
/// other.
enum class Resource { compute, h2d, d2h, disk_read, disk_write, cpu_compute, send, receive };
inline constexpr int kResources = 8;

/// Whether a step of the resource begins only when the one before has ended. Disk transfers do not:
/// several are in flight, and only their ends are told in order.
constexpr bool one_at_a_time(Resource resource) {
  return resource != Resource::disk_read && resource != Resource::disk_write;
}

enum class BufferKind {
  hidden_device,   ///< activations of a visit; index: ring, part: GPU batch, or -1 for the whole
  hidden_cpu,      ///< likewise
  hidden_disk,     ///< likewise
  hidden_work,     ///< the activations of the GPU batch that is computed; index: turn
  hidden_staging,  ///< between disk and device; index: turn
  weights,         ///< streamed weights; index: buffer, part: a fixed cut of the unit
  weight_staging,  ///< index
  wide_weights,    ///< of one unit
  workspace,       ///< of the compute operations; index: turn
  kv_device,       ///< the pages that only compute touches
  kv_cpu,          ///< index: slot, part: layer
  kv_open,         ///< likewise: disk pages that are not full
  kv_disk,         ///< likewise
  kv_passing,      ///< disk pages that begin and are full in one visit; index: turn
  kv_staging,      ///< pages on the device; index: turn, part: 0 from DRAM, 1 from disk
  kv_cpu_staging,  ///< disk pages in DRAM; index: turn
  rows_cpu,        ///< query, key and value in DRAM; index: turn
  partials_cpu,    ///< partial results, selections and selected values; index: turn
  partials_device,
  scores_cpu,  ///< index: turn
  scores_device,
  outcomes  ///< results of the visit on their way to the first stage; index: ring
};

struct BufferRef {
  BufferKind kind{};
  std::int32_t index = 0;
  std::int32_t part = 0;
  friend auto operator<=>(const BufferRef&, const BufferRef&) = default;
};

/// A step's name within one stage: the visit's number and the step's place in that visit.
struct StepId {
  std::int64_t visit = -1;
  std::int32_t index = -1;
  friend auto operator<=>(const StepId&, const StepId&) = default;
};

struct Step {
  StepId id{};
  StepKind kind{};
  Resource resource{};
  std::int32_t layer = -1;      ///< of this stage, from 0; -1 where it has none
  std::int32_t gpu_batch = -1;  ///< index into VisitSchedule::batches
  std::int32_t turn = 0;        ///< which of the buffers that GPU batches use in turn
  std::int32_t work = 0;        ///< turn of the activations' work buffer
  std::int32_t unit = 0;        ///< part of the layer
  std::int32_t buffer = 0;      ///< of streamed weights
  std::int32_t staging = 0;     ///< of streamed weights
  offload::ByteRange range{};   ///< weights: of the layer's image
  offload::Tier tier{};         ///< activations: where they come from or go to
  std::int64_t rows = 0;
  double flops = 0;
  std::int64_t bytes = 0;  ///< moved over the wire, a bus or from or to disk
  std::vector<BufferRef> reads{};
  std::vector<BufferRef> writes{};
  /// Steps that must have ended first, beside those before it on its own resource where
  /// one_at_a_time. At most one a resource: what it ends, all before it on that resource have.
  std::vector<StepId> waits{};
};

std::string to_string(StepKind kind);
std::string to_string(Resource resource);
std::string to_string(BufferKind kind);

}  // namespace stagecoach::stage
