#include "job/eval_report.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/error.hpp"

namespace stagecoach::job {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(PerplexityMethod method) {
  return method == PerplexityMethod::rolling ? "rolling" : "stream";
}

const char* name_of(DocumentSplit split) {
  switch (split) {
    case DocumentSplit::whole:
      return "whole";
    case DocumentSplit::blank_lines:
      return "blank-lines";
    case DocumentSplit::lines:
      return "lines";
  }
  return "whole";
}

TaskSums sum(const TaskRange& range, std::span<const Score> scores) {
  TaskSums sums;
  sums.skipped = range.skipped;
  for (const auto& score : scores.subspan(range.begin, range.end - range.begin)) {
    ++sums.items;
    sums.tokens += score.tokens;
    sums.greedy += score.greedy ? 1 : 0;
    sums.logprob += score.logprob;
  }
  return sums;
}

double nll_per(const TaskSums& sums, std::int64_t count) {
  return -sums.logprob / static_cast<double>(count);
}

Json to_json(const PerplexityFigures& figures) {
  Json out = {{"method", name_of(figures.method)},
              {"documents_are", name_of(figures.documents_are)},
              {"documents", figures.documents},
              {"windows", figures.sums.items},
              {"tokens", figures.sums.tokens},
              {"logprob", figures.sums.logprob},
              {"nll_per_token", figures.nll_per_token()},
              {"perplexity", figures.perplexity()}};
  if (figures.method == PerplexityMethod::rolling) {
    out["words"] = figures.words;
    out["bytes"] = figures.bytes;
    out["word_perplexity"] = figures.word_perplexity();
    out["byte_perplexity"] = figures.byte_perplexity();
    out["bits_per_byte"] = figures.bits_per_byte();
  }
  return out;
}

Json to_json(const LastWordFigures& figures) {
  return {{"examples", figures.sums.items},         {"skipped", figures.sums.skipped},
          {"tokens", figures.sums.tokens},          {"right", figures.sums.greedy},
          {"accuracy", figures.accuracy()},         {"logprob", figures.sums.logprob},
          {"nll_per_word", figures.nll_per_word()}, {"perplexity", figures.perplexity()}};
}

Json to_json(const TaskSums& sums) {
  return {{"items", sums.items},
          {"skipped", sums.skipped},
          {"tokens", sums.tokens},
          {"greedy", sums.greedy},
          {"logprob", sums.logprob}};
}

Json tasks_to_json(const EvalReport& report) {
  Json tasks = Json::object();
  if (report.perplexity) {
    tasks["perplexity"] = to_json(*report.perplexity);
  }
  if (report.last_word) {
    tasks["last_word"] = to_json(*report.last_word);
  }
  if (report.logprobs) {
    tasks["logprobs"] = to_json(*report.logprobs);
  }
  return tasks;
}

std::string format_value(const Json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  return value.is_number_float() ? fmt::format("{:.6f}", value.get<double>()) : value.dump();
}

}  // namespace

double PerplexityFigures::nll_per_token() const { return nll_per(sums, sums.tokens); }
double PerplexityFigures::perplexity() const { return std::exp(nll_per_token()); }
double PerplexityFigures::word_perplexity() const { return std::exp(nll_per(sums, words)); }
double PerplexityFigures::byte_perplexity() const { return std::exp(nll_per(sums, bytes)); }
double PerplexityFigures::bits_per_byte() const { return nll_per(sums, bytes) / std::numbers::ln2; }

double LastWordFigures::accuracy() const {
  return static_cast<double>(sums.greedy) / static_cast<double>(sums.items);
}
double LastWordFigures::nll_per_word() const { return nll_per(sums, sums.items); }
double LastWordFigures::perplexity() const { return std::exp(nll_per_word()); }

EvalReport make_report(const EvalConfig& config, const EvalJob& job,
                       std::span<const Score> scores) {
  STAGECOACH_CHECK(scores.size() == job.requests.size());
  EvalReport report;
  if (!config.perplexity_path.empty()) {
    report.perplexity = {.sums = sum(job.perplexity, scores),
                         .method = config.method,
                         .documents_are = config.documents,
                         .documents = job.documents,
                         .words = job.words,
                         .bytes = job.bytes};
  }
  if (!config.last_word_path.empty()) {
    report.last_word = {.sums = sum(job.last_word, scores)};
  }
  if (!config.logprobs_path.empty()) {
    report.logprobs = sum(job.logprobs, scores);
  }
  return report;
}

std::string format_table(const EvalReport& report) {
  std::string table;
  const auto tasks = tasks_to_json(report);
  for (const auto& [task, figures] : tasks.items()) {
    for (const auto& [figure, value] : figures.items()) {
      table += fmt::format("{:<11} {:<16} {}\n", task, figure, format_value(value));
    }
  }
  return table;
}

std::string format_report(const EvalReport& report, const EvalOrigin& origin) {
  const Json out = {{"stagecoach", origin.version},
                    {"model", {{"name", origin.model_name}, {"digest", origin.model_digest}}},
                    {"arithmetic", origin.arithmetic},
                    {"tasks", tasks_to_json(report)},
                    {"configuration", Json::parse(origin.configuration)}};
  return out.dump(2) + "\n";
}

}  // namespace stagecoach::job
