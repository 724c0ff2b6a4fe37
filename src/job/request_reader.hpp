#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "job/lines.hpp"
#include "job/request.hpp"
#include "model/spec.hpp"
#include "model/tokenizer.hpp"

namespace stagecoach::job {

struct RequestList {
  std::vector<Request> requests;  ///< in input order; may be empty
  std::int64_t skipped = 0;       ///< bad lines, with OnError::skip
};

/// Reads JSON Lines (docs/formats.md, "Requests and results"), checks and tokenizes them. `path`
/// "-" is standard input. `tokenizer` is nullptr for a model without one: `prompt` and stop strings
/// are then refused. A bad line is a ConfigError `path:line: what; what to do`, or a warning; a
/// file that cannot be read is a ConfigError too, a read that fails half-way an IoError.
RequestList read_requests(const std::string& path, const RequestDefaults& defaults,
                          const model::ModelSpec& spec, const model::Tokenizer* tokenizer,
                          OnError on_error, const Log& log);

/// The same from a stream; `name` stands for the path in messages.
RequestList read_requests(std::istream& in, const std::string& name,
                          const RequestDefaults& defaults, const model::ModelSpec& spec,
                          const model::Tokenizer* tokenizer, OnError on_error, const Log& log);

}  // namespace stagecoach::job
