#pragma once

#include <string>

#include "job/request.hpp"

namespace stagecoach::job {

/// Takes requests as they finish, in no fixed order.
class CompletionSink {
 public:
  CompletionSink() = default;
  CompletionSink(const CompletionSink&) = delete;
  CompletionSink& operator=(const CompletionSink&) = delete;
  CompletionSink(CompletionSink&&) = delete;
  CompletionSink& operator=(CompletionSink&&) = delete;
  virtual ~CompletionSink() = default;

  /// `completion.request` is the index of `request` in the job. `text` is the generated text, valid
  /// UTF-8.
  virtual void write(const Request& request, const Completion& completion,
                     const std::string& text) = 0;
};

}  // namespace stagecoach::job
