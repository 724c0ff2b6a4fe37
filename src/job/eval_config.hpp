#pragma once

#include <cstdint>
#include <string>

namespace stagecoach::job {

/// How a text is cut into windows (docs/accuracy.md).
enum class PerplexityMethod {
  rolling,  ///< each document alone, every token predicted once
  stream    ///< documents joined, whole windows only
};

/// What of a text file is a document.
enum class DocumentSplit {
  whole,        ///< the file
  blank_lines,  ///< what lies between empty lines
  lines         ///< a line
};

/// What `eval` was asked to do. A task whose path is empty is left out.
struct EvalConfig {
  std::string perplexity_path;  ///< text
  PerplexityMethod method = PerplexityMethod::rolling;
  DocumentSplit documents = DocumentSplit::whole;
  std::int64_t window = 0;  ///< tokens; 0: the model's max_positions
  std::int64_t stride = 0;  ///< tokens; 0: the window

  std::string last_word_path;        ///< JSON Lines
  std::string logprobs_path;         ///< JSON Lines
  std::string logprobs_output_path;  ///< with logprobs_path: JSON Lines
  std::string report_path;           ///< JSON; may be empty
};

}  // namespace stagecoach::job
