#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <unordered_map>

#include "stage/step.hpp"

namespace stagecoach::stage {

/// Finds what each step must wait for: read after write, write after write and write after read on
/// every buffer, over all the steps added so far.
class Dependencies {
 public:
  /// Fills in `step.waits`; the step's id, resource and buffers are set.
  void add(Step& step);
  /// Steps added from here on wait for all before, but for sends and receives.
  void fence();
  /// From here on every step waits for the one before it.
  void serialize() { serial_ = true; }

 private:
  using Latest = std::array<std::optional<StepId>, kResources>;
  struct Use {
    std::optional<StepId> writer;
    Resource writer_resource{};
    Latest readers;  ///< since that write
  };
  struct HashRef {
    std::size_t operator()(const BufferRef& ref) const noexcept;
  };

  std::unordered_map<BufferRef, Use, HashRef> uses_;
  Latest issued_;
  Latest fence_;
  bool serial_ = false;
  std::optional<StepId> last_;
  Resource last_resource_{};
};

}  // namespace stagecoach::stage
