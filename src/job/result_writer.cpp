#include "job/result_writer.hpp"

#include <utility>

#include "base/error.hpp"

namespace stagecoach::job {
namespace {

/// Before the output is made: a refused job must leave nothing behind.
LineFileOptions checked(const ResultWriterOptions& options) {
  if (options.ordered) {
    const auto ordered = ordered_path(options.path);
    if (!options.overwrite) {
      refuse_existing(ordered, "--output");
    }
  }
  return {.path = options.path, .overwrite = options.overwrite};
}

}  // namespace

ResultWriter::ResultWriter(ResultWriterOptions options, const model::Tokenizer* tokenizer)
    : options_(std::move(options)), tokenizer_(tokenizer), file_(checked(options_)) {}

void ResultWriter::write(const Request& request, const Completion& completion,
                         const std::string& text) {
  file_.append(format_result(request, completion, text, tokenizer_, options_));
}

std::string ordered_path(const std::string& output_path) {
  if (output_path == "-") {
    throw ConfigError("--ordered needs a file to read back: name one with --output");
  }
  constexpr std::string_view kSuffix = ".jsonl";
  const auto stem = output_path.ends_with(kSuffix)
                        ? output_path.substr(0, output_path.size() - kSuffix.size())
                        : output_path;
  return stem + ".ordered.jsonl";
}

}  // namespace stagecoach::job
