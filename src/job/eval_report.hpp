#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "job/eval_config.hpp"
#include "job/eval_job.hpp"
#include "job/eval_scores.hpp"

namespace stagecoach::job {

/// Sums over the requests of a task, in their order.
struct TaskSums {
  std::int64_t items = 0;
  std::int64_t skipped = 0;  ///< bad lines
  std::int64_t tokens = 0;   ///< scored
  std::int64_t greedy = 0;   ///< items whose every token is the likeliest
  double logprob = 0;        ///< natural
};

struct PerplexityFigures {
  TaskSums sums;  ///< its items are windows
  PerplexityMethod method = PerplexityMethod::rolling;
  DocumentSplit documents_are = DocumentSplit::whole;
  std::int64_t documents = 0;
  std::int64_t words = 0;  ///< of the documents
  std::int64_t bytes = 0;

  [[nodiscard]] double nll_per_token() const;
  [[nodiscard]] double perplexity() const;
  // Not with `stream`, which drops tokens at the end and counts those of </s>:
  [[nodiscard]] double word_perplexity() const;
  [[nodiscard]] double byte_perplexity() const;
  [[nodiscard]] double bits_per_byte() const;
};

struct LastWordFigures {
  TaskSums sums;

  [[nodiscard]] double accuracy() const;
  [[nodiscard]] double nll_per_word() const;
  [[nodiscard]] double perplexity() const;
};

/// What an `eval` found out (docs/accuracy.md). Tasks that were not asked for are left out.
struct EvalReport {
  std::optional<PerplexityFigures> perplexity;
  std::optional<LastWordFigures> last_word;
  std::optional<TaskSums> logprobs;
};

/// `scores`: one a request of the job.
EvalReport make_report(const EvalConfig& config, const EvalJob& job, std::span<const Score> scores);

/// For people: a line a figure.
std::string format_table(const EvalReport& report);

/// What the figures belong to.
struct EvalOrigin {
  std::string version;
  std::string model_name;
  std::string model_digest;
  std::string arithmetic;
  std::string configuration;  ///< JSON
};

/// The JSON of --output, indented. A figure that is not finite is null.
std::string format_report(const EvalReport& report, const EvalOrigin& origin);

}  // namespace stagecoach::job
