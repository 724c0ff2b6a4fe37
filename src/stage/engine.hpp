#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/abort_signal.hpp"
#include "comm/transport.hpp"
#include "device/device.hpp"
#include "offload/kv_pages.hpp"
#include "offload/stage_weights.hpp"
#include "stage/decoder_layer.hpp"
#include "stage/schedule.hpp"
#include "stage/visit.hpp"

namespace stagecoach::stage {

/// Carries out the schedule of one stage: hands every step to its resource's stream with the waits
/// that the schedule names, and returns while they run. Stage k is rank k of the transport.
///
/// Used by the stage's control thread alone. A step that fails raises the AbortSignal; later calls
/// then throw JobAborted.
class Engine {
 public:
  /// Takes the stage's buffers from `device`, exactly those of the memory report. Device (whose
  /// memory the host must be able to address), transport, abort and weights must outlive the
  /// engine.
  Engine(StageShape shape, std::int64_t kv_pages_per_layer, const offload::StageWeights& weights,
         device::Device& device, comm::Transport& transport, AbortSignal& abort);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  Engine(Engine&&) = delete;
  Engine& operator=(Engine&&) = delete;

  /// Issues a visit's steps. Blocks only while the ring of hidden buffers is full, that is at most
  /// kHiddenRing visits run ahead. A `last` visit is only passed on.
  void issue(const std::shared_ptr<const Visit>& visit);

  /// Returns when every issued step has run.
  void finish();

 private:
  struct HeadRows;
  struct Outcomes;
  /// What the steps of one visit share.
  struct InFlight {
    std::shared_ptr<const Visit> visit;
    VisitSchedule schedule;
    std::shared_ptr<Outcomes> outcomes;  ///< on the last stage
  };

  void wait_for_ring_place();
  void update_pages(const Visit& visit);
  void run_step(const Step& step, const InFlight& flight);
  void embed(const Step& step, const InFlight& flight);
  void layer(const Step& step, const InFlight& flight);
  void head(const Step& step, const InFlight& flight);
  void head_chunk(const HeadRows& rows, std::size_t first, std::size_t count, const float* hidden,
                  std::span<device::SampleResult> results);
  void receive_hidden(const Step& step, const InFlight& flight);
  void send_plan(const std::shared_ptr<const Visit>& visit);
  void send_hidden(const Step& step, const InFlight& flight);
  void send_tokens(const InFlight& flight);

  [[nodiscard]] device::Stream& stream_of(Resource resource) const;
  [[nodiscard]] float* hidden_rows(std::int32_t ring, std::int64_t first_row) const;
  [[nodiscard]] std::int64_t place_of(std::int32_t block, std::int32_t slot) const;
  [[nodiscard]] std::vector<device::SequenceRows> sequences_of(const Visit& visit,
                                                               const GpuBatch& batch,
                                                               std::int64_t layer) const;

  StageShape shape_;
  const offload::StageWeights& weights_;
  device::Device& device_;
  comm::Transport& transport_;
  AbortSignal& abort_;
  Scheduler scheduler_;
  device::Buffer kv_memory_;
  device::Buffer hidden_memory_;
  device::Buffer workspace_memory_;
  offload::KvPages pages_;
  LayerWorkspace workspace_;
  /// Events of the steps of the visits in the ring; older steps have run.
  std::map<StepId, device::Event> events_;
  std::vector<std::int64_t> in_ring_;  ///< their numbers, oldest first
  // Last, so that they are destroyed first: their work uses everything above.
  std::unique_ptr<device::Stream> compute_;
  std::unique_ptr<device::Stream> send_;
  std::unique_ptr<device::Stream> receive_;
};

}  // namespace stagecoach::stage
