#include "cli/eval_options.hpp"

#include "base/error.hpp"
#include "cli/job_options.hpp"

namespace stagecoach::cli {
namespace {

using Integer = std::int64_t;
using Text = std::string;

constexpr const char* kUsage =
    "usage: stagecoach eval --model FILE [--perplexity TEXT] [--last-word JSONL]\n"
    "                       [--logprobs JSONL --logprobs-output JSONL] [--output JSON] [options]\n"
    "       mpirun -n STAGES stagecoach eval ...\n"
    "\n"
    "Perplexity is exp(-sum of the tokens' natural log probabilities / tokens); of words and of\n"
    "bytes, the same sum by theirs. Method rolling is lm-evaluation-harness's: each document "
    "alone\n"
    "after </s>, every token predicted once. docs/accuracy.md defines all that is printed.";

constexpr Integer kMost = Integer{1} << 40;

po::options_description task_options() {
  po::options_description group("Tasks, at least one");
  group.add_options()("perplexity", po::value<Text>(), "perplexity of a text file (UTF-8)")(
      "perplexity-method", po::value<Text>()->default_value("rolling"),
      "rolling (each document alone) or stream (all joined, whole windows only)")(
      "documents", po::value<Text>()->default_value("whole"),
      "what of the text is a document: whole, blank-lines or lines")(
      "window", po::value<Integer>(), "tokens fed at once, at most (the model's positions)")(
      "stride", po::value<Integer>(),
      "with rolling: tokens predicted by a window after a document's first; the rest of it is "
      "context (the window)")("last-word", po::value<Text>(),
                              "accuracy on the last words of {\"text\": ...} lines (LAMBADA)")(
      "logprobs", po::value<Text>(),
      "log probabilities of {\"id\", \"context\", \"continuation\"} lines")(
      "logprobs-output", po::value<Text>(), "those, JSON Lines, as they finish");
  return group;
}

po::options_description output_options() {
  po::options_description group("Output");
  group.add_options()("output", po::value<Text>(), "all figures and settings, JSON")(
      "overwrite", po::bool_switch(), "replace existing outputs")(
      "on-error", po::value<Text>()->default_value("stop"), "what a bad line does: skip or stop");
  return group;
}

Text text_or_empty(const Options& options, const char* name) {
  return options.has(name) ? options.text(name) : Text();
}

Integer integer_or_zero(const Options& options, const char* name) {
  return options.has(name) ? options.integer(name, 1, kMost) : 0;
}

job::EvalConfig read_tasks(const Options& options) {
  using Method = job::PerplexityMethod;
  using Split = job::DocumentSplit;
  job::EvalConfig eval;
  eval.perplexity_path = text_or_empty(options, "perplexity");
  eval.method = one_of<Method>(options, "perplexity-method",
                               {{"rolling", Method::rolling}, {"stream", Method::stream}});
  eval.documents = one_of<Split>(
      options, "documents",
      {{"whole", Split::whole}, {"blank-lines", Split::blank_lines}, {"lines", Split::lines}});
  eval.window = integer_or_zero(options, "window");
  eval.stride = integer_or_zero(options, "stride");
  eval.last_word_path = text_or_empty(options, "last-word");
  eval.logprobs_path = text_or_empty(options, "logprobs");
  eval.logprobs_output_path = text_or_empty(options, "logprobs-output");
  eval.report_path = text_or_empty(options, "output");
  return eval;
}

}  // namespace

std::optional<job::JobConfig> read_eval_options(const std::vector<std::string>& arguments,
                                                int launched_ranks) {
  po::options_description all;
  all.add(model_options()).add(task_options()).add(output_options());
  add_pipeline_options(all);
  const auto options = parse_options("eval", kUsage, all, arguments);
  if (!options) {
    return std::nullopt;
  }
  job::JobConfig config;
  config.eval = read_tasks(*options);
  read_job_options(*options, launched_ranks, config);
  validate(config);
  return config;
}

}  // namespace stagecoach::cli
