#include "cli/plan_limits.hpp"

#include <sstream>
#include <string>

namespace stagecoach::cli {
namespace {

void allow(const std::string& name, plan::PlanRequest& request) {
  if (name == "int4-weights" || name == "int8-weights") {
    const model::WeightFormat format{
        .layers = {name == "int4-weights" ? Packing::int4 : Packing::int8}, .embeddings = false};
    if (request.weights.packed()) {
      throw ConfigError(fmt::format("--allow {}: the store's weights are packed already, as {}",
                                    name, model::describe(request.weights)));
    }
    request.allowed_weights.push_back(format);
  } else if (name == "int4-cache" || name == "int8-cache") {
    request.allowed_caches.emplace_back(name == "int4-cache" ? device::KvType::int4
                                                             : device::KvType::int8);
  } else {
    throw ConfigError(
        fmt::format("--allow {}: must be some of int4-weights, int8-weights, int4-cache and "
                    "int8-cache, with commas",
                    name));
  }
}

}  // namespace

po::options_description plan_limit_options() {
  po::options_description group("What a plan may do");
  group.add_options()("allow", po::value<std::string>(),
                      "compression that it may choose, with commas: int4-weights, int8-weights, "
                      "int4-cache, int8-cache (none)")(
      "max-latency", po::value<double>(), "seconds that a request may take at most (any)");
  return group;
}

void read_plan_limits(const Options& options, plan::PlanRequest& request) {
  if (options.has("allow")) {
    std::istringstream names(options.text("allow"));
    for (std::string name; std::getline(names, name, ',');) {
      allow(name, request);
    }
  }
  if (options.has("max-latency")) {
    request.max_latency_seconds = options.get<double>("max-latency");
    if (!(request.max_latency_seconds > 0 && request.max_latency_seconds <= 1e9)) {
      throw ConfigError(
          fmt::format("--max-latency {}: must be above 0 seconds", request.max_latency_seconds));
    }
  }
}

}  // namespace stagecoach::cli
