#pragma once

#include <functional>
#include <vector>

#include "base/abort_signal.hpp"
#include "cuda/tapped_device.hpp"
#include "stage/engine.hpp"
#include "support/temp_folder.hpp"
#include "unit/stage/virtual_pipeline.hpp"

namespace stagecoach::test {

struct EngineOptions {
  stage::Percent percent{};
  stage::ScheduleKind schedule = stage::ScheduleKind::rolling;
  stage::Switch cpu_attention = stage::Switch::off;
  bool compressed = false;  ///< packed weights and cache
  bool sparse = false;
};

/// A stage with the whole of a small model and the visits of a job, to be run by a real Engine on a
/// CUDA device and a host device beside it. No weights on disk.
class EngineCase {
 public:
  explicit EngineCase(const EngineOptions& options);

  /// Runs all visits on new devices; `look` sees the tapped device when all is done. Returns each
  /// visit's outcomes as they were sent. Throws what the AbortSignal was raised with.
  std::vector<std::vector<std::byte>> run(
      const Fault& fault, const std::function<void(const TappedDevice&)>& look = {}) const;

  /// All steps, in the order of issue, as the engine's own scheduler makes them.
  [[nodiscard]] std::vector<stage::Step> steps() const;

 private:
  std::vector<std::vector<std::byte>> run(
      const Fault& fault, AbortSignal& abort,
      const std::function<void(const TappedDevice&)>& look) const;

  testing::TempFolder folder_;
  stage::StagePlan plan_;
  std::vector<stage::Visit> visits_;
};

}  // namespace stagecoach::test
