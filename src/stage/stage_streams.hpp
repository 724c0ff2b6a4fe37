#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/abort_signal.hpp"
#include "device/device.hpp"
#include "offload/disk_stream.hpp"
#include "stage/step.hpp"

namespace stagecoach::stage {

/// A stream for each resource.
class StageStreams {
 public:
  /// `cpu`: the device that attends on the CPU; null: there is no such work. Disk streams are made
  /// if `disk`. The delays of `disk_options`, for tests, are the wire's too.
  StageStreams(device::Device& device, device::Device* cpu, bool disk,
               const offload::DiskOptions& disk_options, AbortSignal& abort);

  /// InternalError if the stage has no such resource.
  [[nodiscard]] device::Stream& of(Resource resource) const;
  [[nodiscard]] offload::DiskStream& disk(Resource resource) const;
  [[nodiscard]] bool has(Resource resource) const;

 private:
  std::array<std::unique_ptr<device::Stream>, kResources> streams_;
};

}  // namespace stagecoach::stage
