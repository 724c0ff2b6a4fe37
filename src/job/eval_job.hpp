#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "job/eval_config.hpp"
#include "job/eval_items.hpp"
#include "job/request.hpp"

namespace stagecoach::job {

/// The requests of one task among those of the job.
struct TaskRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::int64_t skipped = 0;  ///< bad lines of its input

  [[nodiscard]] bool has(std::int64_t request) const {
    return static_cast<std::size_t>(request) >= begin && static_cast<std::size_t>(request) < end;
  }
};

/// All tasks of an `eval` as one list of requests, which are scored only.
struct EvalJob {
  std::vector<Request> requests;
  TaskRange perplexity;  ///< a window each
  TaskRange last_word;
  TaskRange logprobs;
  // Of the text of --perplexity:
  std::int64_t documents = 0;
  std::int64_t words = 0;
  std::int64_t bytes = 0;
};

/// Reads the inputs. ConfigError when one cannot be read, holds nothing to score, or the window
/// does not fit the model.
EvalJob read_eval_job(const EvalConfig& config, const EvalReading& reading);

}  // namespace stagecoach::job
