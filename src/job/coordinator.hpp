#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "comm/transport.hpp"
#include "job/completion_sink.hpp"
#include "job/progress.hpp"
#include "job/request.hpp"
#include "job/text_assembler.hpp"
#include "model/tokenizer.hpp"
#include "stage/batcher.hpp"
#include "stage/engine.hpp"

namespace stagecoach::job {

/// The first stage's control loop: turns requests into visits, gives them to its own engine (which
/// sends them down the pipeline), takes the tokens that come back, ends sequences and hands them
/// on.
///
/// Blocks take turns in fixed order. A block's next visit is made when its last one has come back,
/// never by what came first, so a run repeats exactly.
class Coordinator {
 public:
  struct Options {
    stage::BatchShape batch;
    std::int64_t kv_pages_per_layer = 0;
    std::int32_t num_logprobs = -1;
    std::int64_t eos_token = 2;
  };

  /// All references must outlive the coordinator. `tokenizer` may be null: texts are then empty.
  Coordinator(const Options& options, const std::vector<Request>& requests,
              const model::Tokenizer* tokenizer, stage::Engine& engine, comm::Transport& transport,
              CompletionSink& sink, Progress& progress);

  /// Runs all requests to their ends and tells the other stages that it is over.
  void run();

 private:
  struct Sequence {
    Completion completion;
    std::unique_ptr<TextAssembler> text;
  };

  [[nodiscard]] bool start_visit(std::int32_t block);
  void finish_visit(std::int32_t block);
  /// Takes what one entry gave; says whether its sequence is over.
  [[nodiscard]] stage::TokenOutcome take(std::int64_t sequence, stage::EntryOutcome outcome);
  [[nodiscard]] bool take_token(Sequence& sequence, const Request& request,
                                const device::SampleResult& chosen);
  Sequence& sequence_state(std::int64_t index);
  void finish(std::int64_t index, Sequence& sequence);

  Options options_;
  const std::vector<Request>& requests_;
  const model::Tokenizer* tokenizer_;
  stage::Engine& engine_;
  comm::Transport& transport_;
  CompletionSink& sink_;
  Progress& progress_;
  stage::Batcher batcher_;
  std::vector<std::shared_ptr<const stage::Visit>> in_flight_;  ///< by block, null when idle
  std::map<std::int64_t, Sequence> alive_;
};

}  // namespace stagecoach::job
