#include <fmt/format.h>

#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "comm/loopback_transport.hpp"
#include "job/agreement.hpp"
#include "job/run_rank.hpp"

namespace stagecoach::job {
namespace {

/// What each stage's thread ended with.
struct StageEnd {
  std::optional<RunReport> report;
  std::exception_ptr failure;
};

/// The refusal that is to be printed, if the stages agreed on one.
void rethrow_refusal(const std::vector<StageEnd>& ends) {
  if (ends.front().failure != nullptr) {
    try {
      std::rethrow_exception(ends.front().failure);
    } catch (const JobRefused&) {
      throw;
    } catch (...) {  // not a refusal: the abort signal has the cause
    }
  }
}

}  // namespace

std::optional<RunReport> run_loopback(const JobConfig& config, const Log& log) {
  const auto model = open_model(config);
  AbortSignal abort;
  const comm::TransportOptions options{
      .timeout =
          std::chrono::milliseconds(static_cast<std::int64_t>(config.timeout_seconds * 1e3))};
  comm::LoopbackHub hub(config.stages, options, abort);
  std::vector<StageEnd> ends(static_cast<std::size_t>(config.stages));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < config.stages; ++rank) {
      threads.emplace_back([&, rank] {
        auto& end = ends[static_cast<std::size_t>(rank)];
        try {
          const auto transport = hub.transport(rank);
          const auto rank_log = rank == 0 ? log : log.named(fmt::format("rank {}", rank));
          end.report =
              run_rank(config, *transport, abort, rank_log, [&] { return ModelAccess(model); });
        } catch (const JobRefused&) {
          end.failure = std::current_exception();
        } catch (...) {
          end.failure = std::current_exception();
          abort.raise(end.failure);
        }
      });
    }
  }
  if (abort.raised()) {
    std::rethrow_exception(abort.cause());
  }
  rethrow_refusal(ends);
  auto whole = std::move(ends.front().report);
  for (std::size_t rank = 1; whole && rank < ends.size(); ++rank) {
    whole->stages.push_back(std::move(ends[rank].report->stages.front()));
  }
  return whole;
}

}  // namespace stagecoach::job
