#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "job/eval_windows.hpp"
#include "job/lines.hpp"
#include "model/spec.hpp"
#include "model/tokenizer.hpp"

namespace stagecoach::job {

/// One line of an input of `eval`: what comes before, and what is scored.
struct EvalItem {
  LineId id;  ///< --logprobs alone
  ScoredTokens scored;
};

struct EvalItems {
  std::vector<EvalItem> items;  ///< in input order
  std::int64_t skipped = 0;     ///< bad lines, with OnError::skip
};

/// What the readers need to know.
struct EvalReading {
  const model::ModelSpec& spec;
  const model::Tokenizer* tokenizer;  ///< nullptr for a model without one
  OnError on_error;
  const Log& log;
};

/// Reads LAMBADA's form, {"text": ...} a line; other keys are ignored. Context: </s> and the tokens
/// of the text up to its last space; scored: those of the space and the last word. Bad lines: see
/// read_lines.
EvalItems read_last_words(std::istream& in, const std::string& name, const EvalReading& reading);

/// Reads {"id", "context" or "context_token_ids", "continuation" or "continuation_token_ids"} a
/// line (docs/accuracy.md). Bad lines: see read_lines.
EvalItems read_continuations(std::istream& in, const std::string& name, const EvalReading& reading);

}  // namespace stagecoach::job
