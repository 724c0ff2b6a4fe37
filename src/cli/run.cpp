#include "cli/commands.hpp"
#include "cli/launch.hpp"
#include "cli/run_options.hpp"

namespace stagecoach::cli {

int run_command(Process& process, const std::vector<std::string>& arguments) {
  launch_job(process, arguments, read_run_options);
  return 0;
}

}  // namespace stagecoach::cli
