#include "plan/cluster.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace stagecoach::plan {

const LinkRates& Cluster::link_after(std::size_t stage) const {
  const auto next = (stage + 1) % stages();
  const auto& node = of_stage(stage);
  return node_of_stage[stage] == node_of_stage[next] ? node.local_link : node.link;
}

Cluster make_cluster(const std::vector<NodeProfile>& profiles, int stages, int stages_a_node) {
  STAGECOACH_CHECK(!profiles.empty() && stages >= 1 && stages_a_node >= 1);
  Cluster cluster;
  for (int first = 0; first < stages; first += stages_a_node) {
    const auto here = std::min(stages_a_node, stages - first);
    const auto number = cluster.nodes.size();
    cluster.nodes.push_back(for_stages(profiles[std::min(number, profiles.size() - 1)], here));
    cluster.node_of_stage.insert(cluster.node_of_stage.end(), static_cast<std::size_t>(here),
                                 number);
  }
  return cluster;
}

}  // namespace stagecoach::plan
