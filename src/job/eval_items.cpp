#include "job/eval_items.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "job/eval_text.hpp"
#include "job/json_line.hpp"

namespace stagecoach::job {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::array<std::string_view, 5> kKeys = {"id", "context", "context_token_ids",
                                                   "continuation", "continuation_token_ids"};

ScoredTokens join(Tokens context, const Tokens& continuation, const model::ModelSpec& spec) {
  ScoredTokens scored{.tokens = std::move(context)};
  scored.score_from = static_cast<std::int32_t>(scored.tokens.size());
  scored.tokens.insert(scored.tokens.end(), continuation.begin(), continuation.end());
  const auto fed = static_cast<std::int64_t>(scored.tokens.size()) - 1;
  if (fed > spec.max_positions) {
    throw ConfigError(
        fmt::format("there are {} tokens before the last one, and the model takes {}; shorten the "
                    "context by {}",
                    fed, spec.max_positions, fed - spec.max_positions));
  }
  return scored;
}

const model::Tokenizer& tokenizer_of(const EvalReading& reading, const char* instead) {
  if (reading.tokenizer == nullptr) {
    throw ConfigError(fmt::format("the model has no tokenizer; {}", instead));
  }
  return *reading.tokenizer;
}

/// </s> and the tokens of a text.
Tokens begin_with(const model::ModelSpec& spec, const Tokens& tokens) {
  Tokens all = {static_cast<std::int32_t>(spec.bos_token)};
  all.insert(all.end(), tokens.begin(), tokens.end());
  return all;
}

ScoredTokens read_last_word(const std::string& text, const EvalReading& reading) {
  const JsonLine line(text, R"({"text": ...})");
  const auto* value = line.find("text");
  if (value == nullptr) {
    throw ConfigError("there is no \"text\"; write {\"text\": ...}");
  }
  const auto& whole = JsonLine::string("text", *value);
  const auto space = whole.rfind(' ');
  if (space == std::string::npos || space + 1 == whole.size()) {
    throw ConfigError("\"text\" has no last word: it needs a space and a word after it");
  }
  const auto& tokenizer = tokenizer_of(reading, "take one with --tokenizer");
  return join(begin_with(reading.spec, tokenizer.encode(whole.substr(0, space))),
              tokenizer.encode(whole.substr(space)), reading.spec);
}

/// Makes an item of one line of --logprobs.
class ContinuationReader {
 public:
  ContinuationReader(const std::string& text, const EvalReading& reading)
      : line_(text, R"({"id": ..., "context": ..., "continuation": ...})"), reading_(reading) {}

  [[nodiscard]] EvalItem read() const {
    line_.refuse_unknown_keys(kKeys);
    EvalItem item{.id = line_.id(), .scored = {}};
    const auto* context = one_of("context", "context_token_ids");
    const auto* continuation = one_of("continuation", "continuation_token_ids");
    if (context != nullptr && continuation != nullptr) {
      item.scored = pair(*context, *continuation);
    } else {
      item.scored = join(
          context != nullptr ? begin_with(reading_.spec, encode(*context))
                             : token_ids("context_token_ids"),
          continuation != nullptr ? encode(*continuation) : token_ids("continuation_token_ids"),
          reading_.spec);
    }
    if (item.scored.targets() == 0) {
      throw ConfigError("\"continuation\" has no tokens: there is nothing to score");
    }
    return item;
  }

 private:
  /// The text, or nullptr where there are token ids in its place.
  [[nodiscard]] const std::string* one_of(const char* text, const char* ids) const {
    const auto* value = line_.find(text);
    if ((value == nullptr) == (line_.find(ids) == nullptr)) {
      throw ConfigError(fmt::format("there is {} of \"{}\" and \"{}\"; give one",
                                    value == nullptr ? "neither" : "each", text, ids));
    }
    return value == nullptr ? nullptr : &JsonLine::string(text, *value);
  }

  [[nodiscard]] Tokens encode(const std::string& text) const {
    return tokenizer_of(reading_, "give token ids and not text").encode(text);
  }

  [[nodiscard]] Tokens token_ids(const char* key) const {
    return JsonLine::token_ids(key, *line_.find(key), reading_.spec.vocab);
  }

  /// As lm-evaluation-harness: white space between the texts belongs to the continuation, whose
  /// tokens are those of the whole after as many as the context has by itself.
  [[nodiscard]] ScoredTokens pair(const std::string& context,
                                  const std::string& continuation) const {
    const auto before = encode(context.substr(0, size_without_trailing_space(context)));
    auto whole = encode(context + continuation);
    whole.erase(whole.begin(),
                whole.begin() + static_cast<std::ptrdiff_t>(std::min(before.size(), whole.size())));
    return join(begin_with(reading_.spec, before), whole, reading_.spec);
  }

  const JsonLine line_;
  const EvalReading& reading_;
};

}  // namespace

EvalItems read_last_words(std::istream& in, const std::string& name, const EvalReading& reading) {
  EvalItems read;
  read.skipped = read_lines(
      in, name, reading.on_error, reading.log, [&](const std::string& text, std::int64_t) {
        read.items.push_back({.id = {}, .scored = read_last_word(text, reading)});
      });
  return read;
}

EvalItems read_continuations(std::istream& in, const std::string& name,
                             const EvalReading& reading) {
  EvalItems read;
  UniqueIds ids;
  read.skipped = read_lines(in, name, reading.on_error, reading.log,
                            [&](const std::string& text, std::int64_t line) {
                              auto item = ContinuationReader(text, reading).read();
                              ids.add(item.id.text, line);
                              read.items.push_back(std::move(item));
                            });
  return read;
}

}  // namespace stagecoach::job
