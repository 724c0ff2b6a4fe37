#pragma once

#include <string>
#include <vector>

#include "cli/process.hpp"

namespace stagecoach::cli {

/// A subcommand: its arguments (without program and subcommand name) in, exit code out. Errors are
/// exceptions; main has the only catch.
int run_command(Process& process, const std::vector<std::string>& arguments);
int eval_command(Process& process, const std::vector<std::string>& arguments);
int convert_command(const std::vector<std::string>& arguments);
int info_command(const std::vector<std::string>& arguments);
int profile_command(Process& process, const std::vector<std::string>& arguments);
int schedule_command(const std::vector<std::string>& arguments);
int plan_command(const std::vector<std::string>& arguments);
int simulate_command(const std::vector<std::string>& arguments);

}  // namespace stagecoach::cli
