#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stage/visit.hpp"

namespace stagecoach::job {

/// What a request may leave out.
struct RequestDefaults {
  std::int64_t max_new_tokens = 32;
  double temperature = 0;
  std::int32_t top_k = 0;
  double top_p = 1;
  std::uint64_t seed = 0;
  std::vector<std::string> stop;
  bool ignore_eos = false;
};

/// One sequence of a job, checked and tokenized: with `run`, a line of the input.
struct Request {
  std::string id;                           ///< text form, unique in the job
  bool id_is_number = false;                ///< the output writes the id as it came
  std::optional<std::string> prompt;        ///< as given, if it was text
  std::vector<std::int32_t> prompt_tokens;  ///< at least one
  /// Already cut so that the sequence fits the context. 0: the prompt is scored, and nothing else;
  /// its last token needs no room in the context then.
  std::int64_t max_new_tokens = 0;
  std::int32_t score_from =
      stage::kScoreNothing;  ///< prompt tokens from this position on are scored
  double temperature = 0;
  std::int32_t top_k = 0;
  double top_p = 1;
  std::uint64_t seed = 0;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::int64_t line = 0;  ///< 1-based, in the input
};

enum class FinishReason { length, eos, stop };

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0;
  std::vector<std::int32_t> top_tokens;
  std::vector<float> top_logprobs;
};

/// A finished request.
struct Completion {
  std::int64_t request = 0;          ///< index in the job's requests
  std::vector<std::int32_t> tokens;  ///< generated, an ending </s> included
  FinishReason finish_reason = FinishReason::length;
  std::vector<TokenLogprob> logprobs;         ///< one a generated token, if asked for
  std::vector<TokenLogprob> prompt_logprobs;  ///< of the scored prompt tokens, in order
};

}  // namespace stagecoach::job
