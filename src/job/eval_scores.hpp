#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/completion_sink.hpp"
#include "job/eval_job.hpp"
#include "job/line_file.hpp"

namespace stagecoach::job {

/// The scores of one request.
struct Score {
  double logprob = 0;  ///< natural; summed in the order of positions
  std::int64_t tokens = 0;
  bool greedy = true;  ///< every token is the likeliest one, of equals the one with the lowest id

  friend bool operator==(const Score&, const Score&) = default;
};

/// Of scored tokens, each with the likeliest one at its place.
Score score_of(const std::vector<TokenLogprob>& tokens);

/// One JSON line, with its newline, for an item of --logprobs (docs/accuracy.md).
std::string format_continuation(const Request& request, const Completion& completion);

/// Keeps the score of every request, and writes a line for each of --logprobs.
class EvalScores : public CompletionSink {
 public:
  /// `job` must outlive this; so must `lines`, which may be nullptr if there are no --logprobs.
  EvalScores(const EvalJob& job, LineFile* lines);

  void write(const Request& request, const Completion& completion,
             const std::string& text) override;

  /// By request.
  [[nodiscard]] const std::vector<Score>& scores() const noexcept { return scores_; }

 private:
  const EvalJob& job_;
  LineFile* lines_;
  std::vector<Score> scores_;
};

}  // namespace stagecoach::job
