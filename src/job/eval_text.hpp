#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "job/eval_config.hpp"

namespace stagecoach::job {

/// The documents of a text, in order; empty ones are left out. Blank lines are two or more newlines
/// in a row; they belong to no document, and neither does a line's newline with `lines`.
std::vector<std::string_view> split_documents(std::string_view text, DocumentSplit split);

/// Pieces of valid UTF-8 text split at runs of white space (Python's re.split(r"\s+", text), which
/// lm-evaluation-harness counts): white space at an end makes an empty piece, and an empty text is
/// one.
std::int64_t count_words(std::string_view text);

/// Length of valid UTF-8 text without the white space at its end.
std::size_t size_without_trailing_space(std::string_view text);

}  // namespace stagecoach::job
