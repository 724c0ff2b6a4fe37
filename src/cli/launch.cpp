#include "cli/launch.hpp"

#include "comm/collectives.hpp"
#include "job/agreement.hpp"
#include "job/run_rank.hpp"

namespace stagecoach::cli {
namespace {

comm::TransportOptions transport_options(double timeout_seconds) {
  return {.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_seconds * 1e3))};
}

std::optional<job::JobConfig> read_job(const std::vector<std::string>& arguments,
                                       const ReadOptions& read, const PrepareJob& prepare,
                                       int launched_ranks, int ranks_on_this_host) {
  auto config = read(arguments, launched_ranks);
  if (config && prepare) {
    const bool here = config->transport == job::TransportKind::loopback;
    prepare(*config, here ? config->stages : ranks_on_this_host);
  }
  return config;
}

/// Rank 0 reads the arguments and the ini file, the others take its word: the file may be on rank
/// 0's machine alone. Nothing after --help.
std::optional<job::JobConfig> agree_on_config(comm::Transport& transport,
                                              const std::vector<std::string>& arguments,
                                              const ReadOptions& read, const PrepareJob& prepare) {
  std::string text;
  job::agree(transport, "reading the configuration", [&] {
    if (transport.rank() == 0) {
      if (const auto config = read_job(arguments, read, prepare, transport.size(),
                                       transport.ranks_on_this_host())) {
        text = job::to_json(*config);
      }
    }
  });
  const auto bytes =
      comm::broadcast(transport, std::as_bytes(std::span(text)), "the configuration");
  text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.empty()) {
    return std::nullopt;
  }
  return job::config_from_json(text);
}

std::optional<job::RunReport> run_over_mpi(const comm::MpiSession& session,
                                           const job::JobConfig& config) {
  AbortSignal abort;
  const auto transport =
      comm::make_mpi_transport(session, transport_options(config.timeout_seconds), abort);
  const Log log(session.rank() == 0 ? "" : fmt::format("rank {}", session.rank()),
                config.log_level);
  try {
    return job::run_rank(config, *transport, abort, log, [&] { return job::open_model(config); });
  } catch (const JobAborted&) {
    if (const auto cause = abort.cause()) {
      std::rethrow_exception(cause);
    }
    throw;
  }
}

}  // namespace

std::optional<job::RunReport> launch_job(Process& process,
                                         const std::vector<std::string>& arguments,
                                         const ReadOptions& read, const PrepareJob& prepare) {
  process.join_launched_job();
  std::optional<job::JobConfig> config;
  if (process.session() == nullptr) {
    config = read_job(arguments, read, prepare, 1, 1);
  } else {
    AbortSignal abort;
    const auto transport =
        comm::make_mpi_transport(*process.session(), comm::TransportOptions{}, abort);
    config = agree_on_config(*transport, arguments, read, prepare);
  }
  if (!config) {
    return std::nullopt;
  }
  if (config->transport == job::TransportKind::loopback) {
    return job::run_loopback(*config, Log("", config->log_level));
  }
  process.start_mpi();
  return run_over_mpi(*process.session(), *config);
}

}  // namespace stagecoach::cli
