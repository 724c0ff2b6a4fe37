// The part of VisitBuilder that streams and widens weights.
#include <algorithm>
#include <utility>

#include "base/aligned_memory.hpp"
#include "stage/visit_builder.hpp"

namespace stagecoach::stage {
namespace {

using offload::ByteRange;

/// A unit's bytes from DRAM, and those from disk, are each cut into so many parts, buffers of their
/// own for the schedule: their transfers do not wait for each other.
constexpr std::size_t kWeightParts = 16;

/// Where part `part` of a range begins, at a page boundary.
std::size_t part_begin(ByteRange range, std::size_t part) {
  return part == kWeightParts
             ? range.end
             : range.begin + range.size() * part / kWeightParts / kPageBytes * kPageBytes;
}

using Parts = WeightParts;

/// Piece `piece` of `pieces`, in whole parts.
Parts parts_of(std::size_t piece, std::size_t pieces) {
  return {kWeightParts * piece / pieces, kWeightParts * (piece + 1) / pieces};
}

ByteRange range_of(ByteRange range, Parts parts) {
  return {part_begin(range, parts.first), part_begin(range, parts.last)};
}

void add_weight_refs(std::vector<BufferRef>& refs, std::int32_t buffer, ByteRange range,
                     Parts parts, bool from_disk) {
  for (auto part = parts.first; part < parts.last; ++part) {
    if (part_begin(range, part) < part_begin(range, part + 1)) {
      refs.push_back({BufferKind::weights, buffer,
                      static_cast<std::int32_t>(part + (from_disk ? kWeightParts : 0))});
    }
  }
}

}  // namespace

/// Nothing of a unit may be computed before its loads have been scheduled.
void VisitBuilder::begin_unit(const Slot& slot) {
  if (!slot.first_of_unit) {
    return;
  }
  if (plan_.weights.buffers > 0) {
    const auto number = unit_number(slot);
    for (; scheduler_.units_loaded_ <= number; ++scheduler_.units_loaded_) {
      load_unit(scheduler_.units_loaded_, 0, 1);
    }
  }
  if (schedule_.widens) {
    widen_weights(slot);
  }
}

/// Once for all GPU batches of the visit.
void VisitBuilder::widen_weights(const Slot& slot) {
  auto step = make(StepKind::widen_weights, Resource::compute, slot);
  step.gpu_batch = -1;
  step.rows = 0;
  read_packed_weights(step, slot);
  step.writes.push_back({BufferKind::wide_weights});
  add(std::move(step));
}

/// Schedules part `piece` of `pieces` of the unit that is as far ahead as there are buffers: its
/// buffer was last used by the unit before the present one.
void VisitBuilder::stream_weights(const Slot& slot, std::size_t piece, std::size_t pieces) {
  if (plan_.weights.buffers < 2) {
    return;
  }
  const auto ahead = unit_number(slot) + plan_.weights.buffers - 1;
  for (; scheduler_.units_loaded_ < ahead; ++scheduler_.units_loaded_) {
    load_unit(scheduler_.units_loaded_, 0, 1);
  }
  load_unit(ahead, piece, pieces);
  if (piece + 1 == pieces) {
    scheduler_.units_loaded_ = ahead + 1;
  }
}

void VisitBuilder::load_unit(std::int64_t number, std::size_t piece, std::size_t pieces) {
  const auto& weights = plan_.weights;
  const auto units = static_cast<std::int64_t>(weights.units.size());
  const auto unit = static_cast<std::size_t>(number % units);
  Step step{.kind = StepKind::load_weights,
            .resource = Resource::h2d,
            .layer = static_cast<std::int32_t>(number / units % plan_.shape.contents.layers),
            .unit = static_cast<std::int32_t>(unit),
            .buffer = static_cast<std::int32_t>(number % weights.buffers)};
  const auto all = parts_of(piece, pieces);
  // Where both pass the bus, part by part: the disk reads ahead while the bus is busy with the
  // other's, as far as there is staging.
  const bool both = !weights.from_cpu(unit).empty() && !weights.from_disk(unit).empty();
  const auto at_once =
      both && !plan_.direct && plan_.overlap && plan_.schedule != ScheduleKind::flexgen
          ? std::size_t{1}
          : kWeightParts;
  for (auto first = all.first; first < all.last; first += at_once) {
    load_parts(step, {first, std::min(first + at_once, all.last)});
  }
}

void VisitBuilder::load_parts(Step step, Parts parts) {
  const auto& weights = plan_.weights;
  const auto unit = static_cast<std::size_t>(step.unit);
  if (const auto range = range_of(weights.from_cpu(unit), parts); !range.empty()) {
    auto load = step;
    load.range = range;
    load.bytes = static_cast<std::int64_t>(range.size());
    // A copy from pageable memory holds up the stream that asks for it.
    if (plan_.schedule == ScheduleKind::flexgen && !weights.pinned) {
      load.resource = Resource::compute;
    }
    add_weight_refs(load.writes, step.buffer, weights.from_cpu(unit), parts, false);
    add(std::move(load));
  }
  if (const auto range = range_of(weights.from_disk(unit), parts); !range.empty()) {
    add_weight_refs(step.writes, step.buffer, weights.from_disk(unit), parts, true);
    read_weights(std::move(step), range);
  }
}

/// `step.writes` are the parts of the weight buffer that `range` fills.
void VisitBuilder::read_weights(Step step, ByteRange range) {
  step.kind = StepKind::read_weights;
  step.resource = Resource::disk_read;
  if (plan_.direct) {
    step.range = range;
    step.bytes = static_cast<std::int64_t>(range.size());
    add(std::move(step));
    return;
  }
  for (auto begin = range.begin; begin < range.end; begin += kWeightStagingBytes) {
    auto read = step;
    read.range = {begin, std::min(begin + kWeightStagingBytes, range.end)};
    read.bytes = static_cast<std::int64_t>(read.range.size());
    read.staging = static_cast<std::int32_t>(scheduler_.stagings_++ % kWeightStagings);
    read.writes = {{BufferKind::weight_staging, read.staging}};
    auto copy = read;
    copy.kind = StepKind::stage_weights;
    copy.resource = Resource::h2d;
    copy.reads = std::exchange(copy.writes, step.writes);
    add(std::move(read));
    add(std::move(copy));
  }
}

void VisitBuilder::read_weight_buffers(Step& step, const Slot& slot) const {
  if (schedule_.widens) {
    step.reads.push_back({BufferKind::wide_weights});
  }
  // Norms and biases are never widened.
  read_packed_weights(step, slot);
}

void VisitBuilder::read_packed_weights(Step& step, const Slot& slot) const {
  const auto& weights = plan_.weights;
  if (weights.buffers == 0 || weights.streamed(slot.unit).empty()) {
    return;
  }
  const Parts all{0, kWeightParts};
  add_weight_refs(step.reads, step.buffer, weights.from_cpu(slot.unit), all, false);
  add_weight_refs(step.reads, step.buffer, weights.from_disk(slot.unit), all, true);
}

std::int64_t VisitBuilder::unit_number(const Slot& slot) const {
  return scheduler_.units_computed_ +
         slot.layer * static_cast<std::int64_t>(plan_.weights.units.size()) +
         static_cast<std::int64_t>(slot.unit);
}

}  // namespace stagecoach::stage
