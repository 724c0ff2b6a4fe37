#pragma once

#include <cstdint>
#include <vector>

#include "stage/batch_kv.hpp"
#include "stage/dependencies.hpp"
#include "stage/stage_plan.hpp"
#include "stage/step.hpp"
#include "stage/visit.hpp"

namespace stagecoach::stage {

/// The entries of one GPU batch and the rows that they take in the visit's hidden states.
struct GpuBatch {
  std::int64_t number = 0;  ///< within the block
  std::int64_t first_entry = 0;
  std::int64_t num_entries = 0;
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
};

struct VisitSchedule {
  std::int32_t ring = 0;  ///< which hidden buffer the visit uses
  std::vector<GpuBatch> batches;
  std::vector<BatchKv> kv;  ///< of each batch
  bool widens = false;      ///< packed weights are widened: products read wide ones
  std::vector<Step> steps;  ///< in the order to issue them; each waits only for earlier ones
};

/// Entries cut by slot into GPU batches of `gpu_batch_size` places; batches without entries are
/// left out.
std::vector<GpuBatch> cut_into_batches(const std::vector<VisitEntry>& entries,
                                       std::int64_t gpu_batch_size);

/// How finely steps name the KV pages that they touch: what they must wait for follows from it.
enum class PageRefs {
  each,     ///< every page: what an engine needs, since a page that is given back goes to others
  by_batch  ///< all pages of a GPU batch's places as one: for a simulation, which has no bytes to
            ///< lose, and far fewer buffers
};

/// Turns a stage's visits, one after the other, into steps: layer by layer, each layer's GPU
/// batches in turn (the zig-zag order: one pass over a layer serves the whole block). While a batch
/// is computed, the next one's pages and activations are loaded, the last one's are stored, and a
/// part of the next layer's weights streams in; at a visit's end, of the next visit's first layer.
/// A pure function of the plan and the visits so far; a step waits only for what it reads or
/// overwrites. Keeps the book of KV pages.
class Scheduler {
 public:
  explicit Scheduler(StagePlan plan, PageRefs page_refs = PageRefs::each);

  [[nodiscard]] VisitSchedule next(const Visit& visit);
  /// Gives back the pages of the sequences that the visit says have ended; next() does so itself.
  void release(const Visit& visit);

  [[nodiscard]] const StagePlan& plan() const noexcept { return plan_; }
  [[nodiscard]] const offload::KvPages& pages() const noexcept { return pages_; }

 private:
  friend class VisitBuilder;

  [[nodiscard]] std::int64_t place_of(std::int32_t block, std::int32_t slot) const;

  StagePlan plan_;
  PageRefs page_refs_;
  offload::KvPages pages_;
  Dependencies dependencies_;
  std::int64_t visits_ = 0;
  std::int64_t turns_ = 0;
  std::int64_t units_computed_ = 0;  ///< units of all visits so far
  std::int64_t units_loaded_ = 0;    ///< whose loads have been scheduled
  std::int64_t stagings_ = 0;
};

/// Floating-point operations of one layer for `rows` tokens that attend to `attended` positions in
/// all: two for each multiply-add of the matrices and of attention.
double layer_flops(const model::ModelSpec& spec, std::int64_t rows, std::int64_t attended);

}  // namespace stagecoach::stage
