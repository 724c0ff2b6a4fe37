#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.hpp"
#include "stage/schedule.hpp"
#include "stage/visit.hpp"

namespace stagecoach::stage {

/// The rows of a GPU batch that go through the head, and what became of each.
struct HeadRows {
  std::vector<std::int32_t> rows;  ///< of the batch's hidden states
  std::vector<device::SampleSpec> specs;
  std::vector<std::size_t> entries;  ///< of the visit
  std::vector<device::SampleResult> results;
};

/// Those rows of a GPU batch whose tokens are sampled or scored.
HeadRows head_rows_of(const Visit& visit, const GpuBatch& batch);

/// Results of a visit's head steps, written on the compute stream and read on the send stream.
struct Outcomes {
  std::vector<std::unique_ptr<HeadRows>> batches;

  [[nodiscard]] std::vector<EntryOutcome> by_entry(std::size_t entries) const;
};

/// What the steps of one visit share. Lives until all of them have run.
struct VisitState {
  std::shared_ptr<const Visit> visit;
  VisitSchedule schedule;
  std::shared_ptr<Outcomes> outcomes;  ///< on the last stage

  [[nodiscard]] const GpuBatch& batch(const Step& step) const {
    return schedule.batches[static_cast<std::size_t>(step.gpu_batch)];
  }
  [[nodiscard]] const BatchKv& kv(const Step& step) const {
    return schedule.kv[static_cast<std::size_t>(step.gpu_batch)];
  }
};

}  // namespace stagecoach::stage
