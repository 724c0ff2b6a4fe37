#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/spec.hpp"
#include "offload/stage_weights.hpp"
#include "stage/batch_shape.hpp"
#include "stage/visit.hpp"

namespace stagecoach::stage {

/// What a step does. Adding one: give it a resource, its buffers and its cost in schedule.cpp, and
/// carry it out in engine.cpp.
enum class StepKind { receive_hidden, embed, layer, head, send_plan, send_hidden, send_tokens };

/// Queues. Steps of one resource run in the order of the schedule; resources run beside each other.
enum class Resource { compute, send, receive };
inline constexpr int kResources = 3;

enum class BufferKind {
  hidden,     ///< [max_visit_rows, hidden] f32; `index` is its place in the ring
  workspace,  ///< of the compute operations
  kv,         ///< pages of block `index`
  outcomes    ///< results of the visit on their way to the first stage; `index` is its ring place
};

struct BufferRef {
  BufferKind kind;
  std::int32_t index = 0;
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
  std::int64_t rows = 0;
  double flops = 0;
  std::int64_t bytes = 0;  ///< over the wire
  std::vector<BufferRef> reads{};
  std::vector<BufferRef> writes{};
  /// Steps of other resources that must have ended first. Earlier steps of the same resource always
  /// have.
  std::vector<StepId> waits{};
};

/// The entries of one GPU batch and the rows that they take in the visit's hidden states.
struct GpuBatch {
  std::int64_t first_entry = 0;
  std::int64_t num_entries = 0;
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
};

struct VisitSchedule {
  std::int32_t ring = 0;  ///< which hidden buffer the visit uses
  std::vector<GpuBatch> batches;
  std::vector<Step> steps;  ///< in the order to issue them; each waits only for earlier ones
};

/// What of a stage decides its steps.
struct StageShape {
  model::ModelSpec spec;
  offload::StageContents contents;
  BatchShape batch;

  [[nodiscard]] bool first() const { return contents.embedding; }
  [[nodiscard]] bool last() const { return contents.head; }
};

/// Hidden buffers of a stage: one received into, one computed in, one sent from.
inline constexpr std::int32_t kHiddenRing = 3;

/// Entries cut by slot into GPU batches of `gpu_batch_size` places; batches without entries are
/// left out.
std::vector<GpuBatch> cut_into_batches(const std::vector<VisitEntry>& entries,
                                       std::int64_t gpu_batch_size);

/// Turns a stage's visits, one after the other, into steps: layer by layer, each layer's GPU
/// batches in turn (the zig-zag order: one pass over a layer serves the whole block). A pure
/// function of the shape and the visits so far; a step waits only for what it reads or overwrites.
class Scheduler {
 public:
  explicit Scheduler(StageShape shape) : shape_(std::move(shape)) {}

  [[nodiscard]] VisitSchedule next(const Visit& visit);

 private:
  struct Use {
    std::optional<StepId> writer;
    Resource writer_resource = Resource::compute;
    std::map<Resource, StepId> readers;  ///< since that write, the latest of each resource
  };

  void add(VisitSchedule& schedule, const Visit& visit, Step step);
  void add_waits(Step& step);

  StageShape shape_;
  std::map<BufferRef, Use> uses_;
  std::int64_t visits_ = 0;
};

/// Floating-point operations of one layer for `rows` tokens that attend to `attended` positions in
/// all: two for each multiply-add of the matrices and of attention.
double layer_flops(const model::ModelSpec& spec, std::int64_t rows, std::int64_t attended);

std::string to_string(StepKind kind);
std::string to_string(Resource resource);

}  // namespace stagecoach::stage
