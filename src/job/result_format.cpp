#include "base/error.hpp"
#include "job/json_text.hpp"
#include "job/result_writer.hpp"

namespace stagecoach::job {
namespace {

const char* name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::length:
      return "length";
    case FinishReason::eos:
      return "eos";
    case FinishReason::stop:
      return "stop";
  }
  return "length";
}

std::string format_logprob(const TokenLogprob& entry, const model::Tokenizer* tokenizer) {
  STAGECOACH_CHECK(entry.top_tokens.size() == entry.top_logprobs.size());
  const auto text = tokenizer == nullptr
                        ? std::string()
                        : model::replace_invalid_utf8(tokenizer->token_bytes(entry.token, true));
  std::string top;
  for (std::size_t i = 0; i < entry.top_tokens.size(); ++i) {
    top += fmt::format(R"({}{{"token_id":{},"logprob":{}}})", i == 0 ? "" : ",",
                       entry.top_tokens[i], format_float(entry.top_logprobs[i]));
  }
  return fmt::format(R"({{"token_id":{},"token":{},"logprob":{},"top":[{}]}})", entry.token,
                     quote(text), format_float(entry.logprob), top);
}

/// The entries as a list, after `first` ("null" or nothing).
std::string format_logprobs(std::string first, const std::vector<TokenLogprob>& entries,
                            const model::Tokenizer* tokenizer) {
  for (const auto& entry : entries) {
    if (!first.empty()) {
      first += ',';
    }
    first += format_logprob(entry, tokenizer);
  }
  return "[" + first + "]";
}

}  // namespace

std::string format_result(const Request& request, const Completion& completion,
                          const std::string& text, const model::Tokenizer* tokenizer,
                          const ResultWriterOptions& options) {
  auto line = fmt::format(R"({{"id":{},"text":{},"token_ids":[{}],"finish_reason":"{}",)"
                          R"("prompt_tokens":{},"completion_tokens":{})",
                          request.id_is_number ? request.id : quote(request.id), quote(text),
                          fmt::join(completion.tokens, ","), name_of(completion.finish_reason),
                          request.prompt_tokens.size(), completion.tokens.size());
  if (options.logprobs) {
    STAGECOACH_CHECK(completion.logprobs.size() == completion.tokens.size());
    line += ",\"logprobs\":" + format_logprobs("", completion.logprobs, tokenizer);
  }
  if (options.prompt_logprobs) {
    STAGECOACH_CHECK(completion.prompt_logprobs.size() + 1 == request.prompt_tokens.size());
    line +=
        ",\"prompt_logprobs\":" + format_logprobs("null", completion.prompt_logprobs, tokenizer);
  }
  return line + "}\n";
}

}  // namespace stagecoach::job
