#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "job/completion_sink.hpp"
#include "job/line_file.hpp"
#include "job/request.hpp"
#include "model/tokenizer.hpp"

namespace stagecoach::job {

struct ResultWriterOptions {
  std::string path = "-";        ///< "-" is standard output
  bool overwrite = false;        ///< replace an existing output (and ordered file)
  bool ordered = false;          ///< `write_ordered` will follow: check at the start that it can
  bool logprobs = false;         ///< write those of the generated tokens
  bool prompt_logprobs = false;  ///< write those of the prompt's tokens
};

/// One JSON line, with its newline, for a finished request (docs/formats.md, "Requests and
/// results"). `text` is valid UTF-8: what TextAssembler made of the tokens. `tokenizer` (for the
/// text of single tokens) may be nullptr. A logprob that is not finite becomes null; every other
/// one reads back to the same float.
std::string format_result(const Request& request, const Completion& completion,
                          const std::string& text, const model::Tokenizer* tokenizer,
                          const ResultWriterOptions& options);

/// The output of `run`: one whole JSON line a finished request, in the order they finish.
class ResultWriter : public CompletionSink {
 public:
  /// Creates the output. ConfigError if it exists and must not be replaced, or cannot be made.
  /// `tokenizer` must outlive this; nullptr for a model without one.
  ResultWriter(ResultWriterOptions options, const model::Tokenizer* tokenizer);

  /// Appends a line; see LineFile.
  void write(const Request& request, const Completion& completion,
             const std::string& text) override;

  /// Waits until everything written is on the disk.
  void sync() { file_.sync(); }

  /// Syncs and closes. Nothing may be written afterwards.
  void close() { file_.close(); }

  [[nodiscard]] std::int64_t results() const noexcept { return file_.lines(); }

 private:
  ResultWriterOptions options_;
  const model::Tokenizer* tokenizer_;
  LineFile file_;
};

/// out.jsonl -> out.ordered.jsonl; other names get ".ordered.jsonl" appended.
std::string ordered_path(const std::string& output_path);

/// Writes `ordered_path(output_path)` with the lines of the finished output in the order of
/// `requests`; requests without a result are left out. Holds one offset a request and one line at a
/// time. The file appears whole or not at all. FormatError when the output has a line that is no
/// result of these requests, or two of one.
void write_ordered(const std::string& output_path, const std::vector<Request>& requests,
                   bool overwrite);

}  // namespace stagecoach::job
