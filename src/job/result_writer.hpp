#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "job/request.hpp"
#include "model/tokenizer.hpp"

namespace stagecoach::job {

struct ResultWriterOptions {
  std::string path = "-";           ///< "-" is standard output
  bool overwrite = false;           ///< replace an existing output (and ordered file)
  bool ordered = false;             ///< `write_ordered` will follow: check at the start that it can
  bool logprobs = false;            ///< write those of the generated tokens
  bool prompt_logprobs = false;     ///< write those of the prompt's tokens
  std::int64_t sync_results = 256;  ///< results after which the file is synced,
  std::chrono::seconds sync_interval{5};  ///< or the time, whichever comes first
};

/// One JSON line, with its newline, for a finished request (docs/formats.md, "Requests and
/// results"). `text` is valid UTF-8: what TextAssembler made of the tokens. `tokenizer` (for the
/// text of single tokens) may be nullptr. A logprob that is not finite becomes null; every other
/// one reads back to the same float.
std::string format_result(const Request& request, const Completion& completion,
                          const std::string& text, const model::Tokenizer* tokenizer,
                          const ResultWriterOptions& options);

/// The job's output: one whole JSON line a finished request, in the order they finish.
class ResultWriter {
 public:
  /// Creates the output. ConfigError if it exists and must not be replaced, or cannot be made.
  /// `tokenizer` must outlive this; nullptr for a model without one.
  ResultWriter(ResultWriterOptions options, const model::Tokenizer* tokenizer);
  ResultWriter(const ResultWriter&) = delete;
  ResultWriter& operator=(const ResultWriter&) = delete;
  ResultWriter(ResultWriter&&) = delete;
  ResultWriter& operator=(ResultWriter&&) = delete;
  /// Closes without a sync if `close` was not called. A new file that then holds nothing is
  /// removed: it would be in the next job's way.
  ~ResultWriter();

  /// Appends a line with one write call. When that fails the file is cut back to its last whole
  /// line, and an IoError says how many results it holds.
  void write(const Request& request, const Completion& completion, const std::string& text);

  /// Waits until everything written is on the disk.
  void sync();

  /// Syncs and closes. Nothing may be written afterwards.
  void close();

  [[nodiscard]] std::int64_t results() const noexcept { return results_; }

 private:
  void open();
  void append(std::string_view line);
  [[noreturn]] void fail_write(int cause);

  ResultWriterOptions options_;
  std::string name_;  ///< of the output, in messages
  const model::Tokenizer* tokenizer_;
  File file_;                ///< not open for standard output
  int descriptor_ = -1;      ///< -1 once closed
  bool is_regular_ = false;  ///< can be cut back
  bool is_new_ = false;      ///< was made here
  std::uint64_t size_bytes_ = 0;
  std::int64_t results_ = 0;
  std::int64_t unsynced_ = 0;
  std::chrono::steady_clock::time_point last_sync_;
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
