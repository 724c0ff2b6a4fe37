#pragma once

#include <functional>
#include <optional>

#include "base/abort_signal.hpp"
#include "base/log.hpp"
#include "comm/transport.hpp"
#include "job/config.hpp"
#include "job/model_access.hpp"
#include "job/run_report.hpp"

namespace stagecoach::job {

/// One rank's whole part in a job: agrees with the others on what is run, takes its memory, loads
/// its layers, runs its stage, and returns when every rank is done. Rank 0 reads the requests and
/// writes the results. Returns nothing after --dry-run.
///
/// Whatever stops the job before the first visit is a JobRefused on every rank. Later failures are
/// thrown where they happen; the caller then ends the other ranks.
std::optional<RunReport> run_rank(const JobConfig& config, comm::Transport& transport,
                                  AbortSignal& abort, const Log& log,
                                  const std::function<ModelAccess()>& open);

/// The whole job with loopback stages, as threads of this process. Throws the first failure.
std::optional<RunReport> run_loopback(const JobConfig& config, const Log& log);

}  // namespace stagecoach::job
