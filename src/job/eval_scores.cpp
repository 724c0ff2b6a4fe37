#include "job/eval_scores.hpp"

#include <fmt/ranges.h>

#include "base/error.hpp"
#include "job/json_text.hpp"

namespace stagecoach::job {

Score score_of(const std::vector<TokenLogprob>& tokens) {
  Score score;
  for (const auto& token : tokens) {
    STAGECOACH_CHECK(!token.top_tokens.empty());
    score.logprob += static_cast<double>(token.logprob);
    score.greedy = score.greedy && token.top_tokens.front() == token.token;
    ++score.tokens;
  }
  return score;
}

std::string format_continuation(const Request& request, const Completion& completion) {
  const auto score = score_of(completion.prompt_logprobs);
  std::vector<std::int32_t> ids;
  std::vector<std::string> logprobs;
  for (const auto& token : completion.prompt_logprobs) {
    ids.push_back(token.token);
    logprobs.push_back(format_float(token.logprob));
  }
  return fmt::format(R"({{"id":{},"logprob":{},"tokens":{},"is_greedy":{},"token_ids":[{}],)"
                     R"("token_logprobs":[{}]}})"
                     "\n",
                     request.id_is_number ? request.id : quote(request.id),
                     format_double(score.logprob), score.tokens, score.greedy, fmt::join(ids, ","),
                     fmt::join(logprobs, ","));
}

EvalScores::EvalScores(const EvalJob& job, LineFile* lines)
    : job_(job), lines_(lines), scores_(job.requests.size()) {}

void EvalScores::write(const Request& request, const Completion& completion,
                       const std::string& /*text*/) {
  scores_.at(static_cast<std::size_t>(completion.request)) = score_of(completion.prompt_logprobs);
  if (job_.logprobs.has(completion.request)) {
    lines_->append(format_continuation(request, completion));
  }
}

}  // namespace stagecoach::job
