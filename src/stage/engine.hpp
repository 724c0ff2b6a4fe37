#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "base/abort_signal.hpp"
#include "comm/transport.hpp"
#include "device/device.hpp"
#include "offload/disk_stream.hpp"
#include "offload/stage_weights.hpp"
#include "stage/schedule.hpp"
#include "stage/stage_memory.hpp"
#include "stage/stage_streams.hpp"
#include "stage/step_context.hpp"
#include "stage/visit.hpp"

namespace stagecoach::stage {

/// What an engine works with; all of it must outlive the engine.
struct EngineParts {
  const StagePlan& plan;
  const StageMemory& memory;
  const offload::StageWeights& weights;
  device::Device& device;
  device::Device* cpu = nullptr;  ///< stores and attends in DRAM; needed if the cache goes there
  comm::Transport& transport;
  AbortSignal& abort;
  offload::DiskOptions disk;
};

/// What a stage has moved so far, and how long that took.
struct EngineTotals {
  std::int64_t rows = 0;  ///< tokens, each a pass through the stage
  /// In which steps of the resource ran; 0: not known (of a GPU's streams). A receive's and a
  /// send's wait for the other rank is part of it.
  std::array<double, kResources> busy_seconds{};
  std::array<std::int64_t, kResources> bytes{};
  std::int64_t weight_bytes_read = 0;  ///< from disk, of bytes[disk_read]
  std::int64_t weight_bytes_wanted =
      0;  ///< of these, what belongs to tensors and is not on the device
  offload::DiskCounters disk_read;
  offload::DiskCounters disk_write;
};

/// Carries out the schedule of one stage: hands every step to its resource's stream with the waits
/// that the schedule names, and returns while they run. Stage k is rank k of the transport.
///
/// Used by the stage's control thread alone. A step that fails raises the AbortSignal; later calls
/// then throw JobAborted.
class Engine {
 public:
  explicit Engine(const EngineParts& parts);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  Engine(Engine&&) = delete;
  Engine& operator=(Engine&&) = delete;

  /// Issues a visit's steps. Blocks only while the ring of hidden buffers is full, that is at most
  /// kHiddenRing visits run ahead. A `last` visit only gives its places back and
  /// is passed on.
  void issue(const std::shared_ptr<const Visit>& visit);

  /// Returns when every issued step has run.
  void finish();

  [[nodiscard]] EngineTotals totals() const;
  /// How disk is read: "io_uring, 8 requests of 8.00 MiB"; empty: not at all.
  [[nodiscard]] std::string disk_description() const;
  [[nodiscard]] const offload::KvPages& pages() const { return scheduler_.pages(); }

 private:
  /// A visit whose steps may still run.
  struct InFlight {
    VisitState state;
    std::array<StepId, kResources> last_of{};  ///< its last step of each resource
  };

  void wait_for_ring_place();
  void run_step(const Step& step, const VisitState& visit);
  void count(const Step& step);

  AbortSignal& abort_;
  const StagePlan& plan_;
  Scheduler scheduler_;
  EngineTotals totals_;
  std::deque<InFlight> in_ring_;  ///< oldest first
  /// Events of the steps of the visits in the ring; older steps have run.
  std::map<StepId, device::Event> events_;
  // Last, so that they are destroyed first: their work uses everything above.
  StageStreams streams_;
  StepContext context_;
};

}  // namespace stagecoach::stage
