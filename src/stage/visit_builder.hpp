#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "stage/schedule.hpp"

namespace stagecoach::stage {

double attention_in_flops(const model::ModelSpec& spec, std::int64_t rows);
double attention_flops(const model::ModelSpec& spec, std::int64_t attended);
double attention_out_flops(const model::ModelSpec& spec, std::int64_t rows);
double mlp_flops(const model::ModelSpec& spec, std::int64_t rows);

/// Parts [first, last) of those that a unit's bytes on one tier are cut into.
struct WeightParts {
  std::size_t first = 0;
  std::size_t last = 0;
};

/// Makes the steps of one visit (see Scheduler).
class VisitBuilder {
 public:
  VisitBuilder(Scheduler& scheduler, const Visit& visit);

  [[nodiscard]] VisitSchedule build();

 private:
  /// One GPU batch in one unit of a layer: what the loops go over.
  struct Slot {
    std::int32_t layer = 0;
    std::size_t unit = 0;
    std::int32_t batch = 0;  ///< index into batches
    std::int32_t turn = 0;
    std::int32_t work = 0;  ///< turn of the activations' work buffer
    bool first_of_unit = false;
    bool carried_in = false;   ///< the activations are in the work buffer already
    bool carried_out = false;  ///< and stay there for the next slot
  };

  void take_pages();
  void make_slots();
  void start_visit();
  void end_visit();

  void run_slot(std::size_t index);
  void run_slot_as_flexgen(std::size_t index);
  void load(const Slot& slot);
  void load_hidden(const Slot& slot);
  void load_pages(const Slot& slot);
  void front(const Slot& slot);
  void back(const Slot& slot);
  void store_rows(const Slot& slot);
  void score_pages(const Slot& slot);
  void attend_on_cpu(const Slot& slot);
  void store_hidden(const Slot& slot);
  void head(const Slot& slot);

  void begin_unit(const Slot& slot);
  void widen_weights(const Slot& slot);
  void stream_weights(const Slot& slot, std::size_t piece, std::size_t pieces);
  void load_unit(std::int64_t number, std::size_t piece, std::size_t pieces);
  void load_parts(Step step, WeightParts parts);
  void read_weights(Step step, offload::ByteRange range);

  /// Counts the units of all visits, from 0.
  [[nodiscard]] std::int64_t unit_number(const Slot& slot) const;
  [[nodiscard]] bool may_start_early(const Slot& slot, const Slot& next) const;
  [[nodiscard]] bool has_attention(const Slot& slot) const { return slot.unit == 0; }
  [[nodiscard]] bool has_mlp(const Slot& slot) const;
  [[nodiscard]] bool first_of_stage(const Slot& slot) const;
  [[nodiscard]] bool last_of_stage(const Slot& slot) const;
  [[nodiscard]] offload::Tier hidden_tier(const Slot& slot) const;
  /// Where the activations come from and go to; none: they are where they are computed with.
  [[nodiscard]] std::optional<offload::Tier> hidden_source(const Slot& slot) const;
  [[nodiscard]] std::optional<offload::Tier> hidden_target(const Slot& slot) const;
  [[nodiscard]] BufferRef hidden_here(const Slot& slot) const;
  [[nodiscard]] std::int64_t hidden_bytes_of(const Slot& slot) const;
  [[nodiscard]] const GpuBatch& batch(const Slot& slot) const;
  [[nodiscard]] const BatchKv& kv(const Slot& slot) const;

  /// The first touch of a ring's buffer in a visit takes it from the visit that had it before.
  void touch_ring(Step& step, BufferKind kind);
  void touch_hidden(Step& step, const Slot& slot, bool writes);
  void add_page_refs(std::vector<BufferRef>& refs, const Slot& slot, BufferKind kind,
                     const std::function<bool(const PagePlace&)>& wanted) const;
  void read_weight_buffers(Step& step, const Slot& slot) const;
  void read_packed_weights(Step& step, const Slot& slot) const;
  [[nodiscard]] std::int64_t exchange_bytes(const Slot& slot) const;
  [[nodiscard]] std::int64_t score_bytes(const Slot& slot) const;
  [[nodiscard]] Step make(StepKind kind, Resource resource, const Slot& slot) const;
  void add(Step step);

  Scheduler& scheduler_;
  const StagePlan& plan_;
  const Visit& visit_;
  VisitSchedule schedule_;
  std::vector<Slot> slots_;
  std::vector<BufferKind> rings_taken_;
  std::optional<Slot> unstored_;  ///< flexgen: whose stores the next slot makes
};

}  // namespace stagecoach::stage
