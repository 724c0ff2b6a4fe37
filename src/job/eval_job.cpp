#include "job/eval_job.hpp"

#include <iterator>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "job/eval_text.hpp"
#include "model/utf8.hpp"

namespace stagecoach::job {
namespace {

using Tokens = std::vector<std::int32_t>;

std::string read_valid_text(const std::string& path) {
  auto in = open_input(path, "--perplexity");
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (const auto at = model::find_invalid_utf8(text); at != std::string::npos) {
    throw ConfigError(
        fmt::format("{}: byte {} is not valid UTF-8; convert the file to UTF-8", path, at));
  }
  return text;
}

struct Windowing {
  std::int64_t window;
  std::int64_t stride;
};

Windowing windowing_of(const EvalConfig& config, const model::ModelSpec& spec) {
  const auto window = config.window > 0 ? config.window : spec.max_positions;
  if (window > spec.max_positions) {
    throw ConfigError(
        fmt::format("--window {}: the model takes {} tokens at most", window, spec.max_positions));
  }
  const auto stride = config.stride > 0 ? config.stride : window;
  if (stride > window) {
    throw ConfigError(fmt::format("--stride {}: must be at most the window, {}", stride, window));
  }
  return {window, stride};
}

Request to_request(ScoredTokens scored, LineId id) {
  Request request;
  request.id = std::move(id.text);
  request.id_is_number = id.is_number;
  request.prompt_tokens = std::move(scored.tokens);
  request.score_from = scored.score_from;
  return request;
}

void add_windows(std::vector<ScoredTokens> windows, EvalJob& job) {
  for (auto& window : windows) {
    job.requests.push_back(to_request(std::move(window), {}));
  }
}

TaskRange read_perplexity(const EvalConfig& config, const EvalReading& reading, EvalJob& job) {
  const auto [window, stride] = windowing_of(config, reading.spec);
  if (reading.tokenizer == nullptr) {
    throw ConfigError("--perplexity: the model has no tokenizer; take one with --tokenizer");
  }
  const auto text = read_valid_text(config.perplexity_path);
  const auto bos = static_cast<std::int32_t>(reading.spec.bos_token);
  TaskRange range{.begin = job.requests.size()};
  Tokens stream;
  for (const auto document : split_documents(text, config.documents)) {
    const auto tokens = reading.tokenizer->encode(document);
    ++job.documents;
    job.words += count_words(document);
    job.bytes += static_cast<std::int64_t>(document.size());
    if (config.method == PerplexityMethod::rolling) {
      add_windows(rolling_windows(tokens, bos, window, stride), job);
    } else {
      stream.push_back(bos);
      stream.insert(stream.end(), tokens.begin(), tokens.end());
    }
  }
  add_windows(stream_windows(stream, window), job);
  range.end = job.requests.size();
  if (range.begin == range.end) {
    throw ConfigError(fmt::format("{}: there is not one window of text", config.perplexity_path));
  }
  return range;
}

TaskRange read_items(EvalItems (*read)(std::istream&, const std::string&, const EvalReading&),
                     const std::string& path, const char* flag, const EvalReading& reading,
                     EvalJob& job) {
  auto in = open_input(path, flag);
  auto list = read(in, path, reading);
  if (list.items.empty()) {
    throw ConfigError(fmt::format("{}: there is nothing to score", path));
  }
  TaskRange range{.begin = job.requests.size(), .skipped = list.skipped};
  for (auto& item : list.items) {
    job.requests.push_back(to_request(std::move(item.scored), std::move(item.id)));
  }
  range.end = job.requests.size();
  return range;
}

}  // namespace

EvalJob read_eval_job(const EvalConfig& config, const EvalReading& reading) {
  EvalJob job;
  if (!config.perplexity_path.empty()) {
    job.perplexity = read_perplexity(config, reading, job);
  }
  if (!config.last_word_path.empty()) {
    job.last_word = read_items(read_last_words, config.last_word_path, "--last-word", reading, job);
  }
  if (!config.logprobs_path.empty()) {
    job.logprobs = read_items(read_continuations, config.logprobs_path, "--logprobs", reading, job);
  }
  return job;
}

}  // namespace stagecoach::job
