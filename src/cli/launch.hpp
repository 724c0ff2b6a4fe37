#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/process.hpp"
#include "job/config.hpp"
#include "job/run_report.hpp"

namespace stagecoach::cli {

/// Reads a subcommand's options, given the number of MPI ranks that run.
using ReadOptions =
    std::function<std::optional<job::JobConfig>(const std::vector<std::string>&, int)>;

/// Completes a configuration that was read, before it goes to the other ranks, given the number of
/// stages on a node.
using PrepareJob = std::function<void(job::JobConfig&, int)>;

/// Runs a whole job, or this rank's part of one. `read` and `prepare` are called by rank 0 alone.
/// Nothing after --help and --dry-run.
std::optional<job::RunReport> launch_job(Process& process,
                                         const std::vector<std::string>& arguments,
                                         const ReadOptions& read,
                                         const PrepareJob& prepare = nullptr);

}  // namespace stagecoach::cli
