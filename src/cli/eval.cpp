#include <fmt/core.h>

#include "cli/commands.hpp"
#include "cli/eval_options.hpp"
#include "cli/launch.hpp"

namespace stagecoach::cli {

int eval_command(Process& process, const std::vector<std::string>& arguments) {
  const auto report = launch_job(process, arguments, read_eval_options);
  if (report && report->eval) {
    fmt::print("{}", job::format_table(*report->eval));
  }
  return 0;
}

}  // namespace stagecoach::cli
