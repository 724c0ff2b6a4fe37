#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/node_profile.hpp"

namespace stagecoach::plan {

/// The machines of a job. Neighbouring stages may be on one node.
struct Cluster {
  std::vector<NodeProfile> nodes;
  std::vector<std::size_t> node_of_stage;  ///< index into `nodes`

  [[nodiscard]] std::size_t stages() const { return node_of_stage.size(); }
  [[nodiscard]] const NodeProfile& of_stage(std::size_t stage) const {
    return nodes[node_of_stage[stage]];
  }
  /// From a stage to the next one; after the last comes the first.
  [[nodiscard]] const LinkRates& link_after(std::size_t stage) const;
};

/// `stages` stages on nodes like these, in turns: with fewer profiles than nodes the last one
/// stands for the rest. `stages_a_node` as for_stages() has it.
Cluster make_cluster(const std::vector<NodeProfile>& profiles, int stages, int stages_a_node);

/// What is asked of a job: one entry a request.
struct RequestLength {
  std::int64_t prompt = 0;     ///< tokens
  std::int64_t generated = 1;  ///< new tokens
  friend bool operator==(const RequestLength&, const RequestLength&) = default;
};
using Workload = std::vector<RequestLength>;

}  // namespace stagecoach::plan
