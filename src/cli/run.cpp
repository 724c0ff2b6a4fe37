#include <utility>

#include "cli/commands.hpp"
#include "cli/launch.hpp"
#include "cli/run_options.hpp"
#include "cli/run_planning.hpp"

namespace stagecoach::cli {

int run_command(Process& process, const std::vector<std::string>& arguments) {
  RunPlanning planning;
  std::string log_level = "info";
  const auto read = [&](const std::vector<std::string>& words,
                        int launched_ranks) -> std::optional<job::JobConfig> {
    auto request = read_run_request(words, launched_ranks);
    if (!request) {
      return std::nullopt;
    }
    planning = RunPlanning(std::move(request->planning));
    log_level = request->config.log_level;
    return std::move(request->config);
  };
  const auto prepare = [&](job::JobConfig& config, int stages_a_node) {
    planning.prepare(config, stages_a_node, Log("", config.log_level));
  };
  if (const auto report = launch_job(process, arguments, read, prepare)) {
    planning.compare(*report, Log("", log_level));
  }
  return 0;
}

}  // namespace stagecoach::cli
