#include "job/coordinator.hpp"

#include <utility>

#include "base/error.hpp"
#include "model/sampling.hpp"

namespace stagecoach::job {
namespace {

std::vector<stage::SequenceInput> sequence_inputs(const std::vector<Request>& requests,
                                                  const Coordinator::Options& options) {
  std::vector<stage::SequenceInput> inputs;
  inputs.reserve(requests.size());
  for (const auto& request : requests) {
    inputs.push_back({.prompt = request.prompt_tokens,
                      .max_new_tokens = request.max_new_tokens,
                      .sampling = {.temperature = request.temperature,
                                   .top_k = request.top_k,
                                   .top_p = request.top_p,
                                   .key = model::sampling_key(request.seed, request.id)},
                      .num_logprobs = options.num_logprobs,
                      .score_from = request.score_from});
  }
  return inputs;
}

/// Whether a sequence that is only scored has all its scores.
bool is_scored(const Completion& completion, const Request& request) {
  return request.max_new_tokens == 0 &&
         completion.prompt_logprobs.size() + static_cast<std::size_t>(request.score_from) ==
             request.prompt_tokens.size();
}

TokenLogprob to_logprob(device::SampleResult result) {
  return {.token = result.token,
          .logprob = result.logprob,
          .top_tokens = std::move(result.top_tokens),
          .top_logprobs = std::move(result.top_logprobs)};
}

}  // namespace

Coordinator::Coordinator(const Options& options, const std::vector<Request>& requests,
                         const model::Tokenizer* tokenizer, stage::Engine& engine,
                         comm::Transport& transport, CompletionSink& sink, Progress& progress)
    : options_(options),
      requests_(requests),
      tokenizer_(tokenizer),
      engine_(engine),
      transport_(transport),
      sink_(sink),
      progress_(progress),
      batcher_(options.batch, options.kv_pages_per_layer, sequence_inputs(requests, options)),
      in_flight_(static_cast<std::size_t>(options.batch.inner_iterations)) {}

void Coordinator::run() {
  while (true) {
    bool any = false;
    for (std::int32_t block = 0; block < options_.batch.inner_iterations; ++block) {
      finish_visit(block);
      any = start_visit(block) || any;
    }
    if (!any && batcher_.done()) {
      break;
    }
    progress_.maybe_report();
  }
  engine_.issue(std::make_shared<const stage::Visit>(batcher_.last_visit()));
  engine_.finish();
}

bool Coordinator::start_visit(std::int32_t block) {
  auto visit = batcher_.next_visit(block);
  if (!visit) {
    return false;
  }
  for (const auto& entry : visit->entries) {
    if (entry.first_position == 0) {
      sequence_state(batcher_.sequence_at(block, entry.slot));
    }
  }
  const auto shared = std::make_shared<const stage::Visit>(std::move(*visit));
  in_flight_[static_cast<std::size_t>(block)] = shared;
  engine_.issue(shared);
  return true;
}

void Coordinator::finish_visit(std::int32_t block) {
  const auto visit = std::exchange(in_flight_[static_cast<std::size_t>(block)], nullptr);
  if (visit == nullptr) {
    return;
  }
  auto outcomes = stage::parse_outcomes(
      transport_.receive_message(transport_.size() - 1, comm::Channel::tokens,
                                 fmt::format("visit {}'s tokens", visit->number)));
  STAGECOACH_CHECK(outcomes.size() == visit->entries.size());
  std::vector<stage::TokenOutcome> tokens;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    tokens.push_back(
        take(batcher_.sequence_at(block, visit->entries[i].slot), std::move(outcomes[i])));
  }
  batcher_.complete(*visit, tokens);
}

Coordinator::Sequence& Coordinator::sequence_state(std::int64_t index) {
  auto [found, made] = alive_.try_emplace(index);
  if (made) {
    const auto& request = requests_[static_cast<std::size_t>(index)];
    found->second.completion.request = index;
    found->second.text = std::make_unique<TextAssembler>(tokenizer_, request.stop);
    progress_.add_prompt_tokens(static_cast<std::int64_t>(request.prompt_tokens.size()));
  }
  return found->second;
}

stage::TokenOutcome Coordinator::take(std::int64_t index, stage::EntryOutcome outcome) {
  auto& sequence = alive_.at(index);
  for (auto& scored : outcome.prompt) {
    sequence.completion.prompt_logprobs.push_back(to_logprob(std::move(scored)));
  }
  const auto& request = requests_[static_cast<std::size_t>(index)];
  const bool ended = outcome.sampled ? take_token(sequence, request, outcome.chosen)
                                     : is_scored(sequence.completion, request);
  if (ended) {
    finish(index, sequence);
  }
  return {outcome.chosen.token, ended};
}

bool Coordinator::take_token(Sequence& sequence, const Request& request,
                             const device::SampleResult& chosen) {
  auto& completion = sequence.completion;
  completion.tokens.push_back(chosen.token);
  progress_.add_generated_token(completion.tokens.size() == 1);
  if (options_.num_logprobs >= 0) {
    completion.logprobs.push_back(to_logprob(chosen));
  }
  if (chosen.token == options_.eos_token && !request.ignore_eos) {
    completion.finish_reason = FinishReason::eos;
    return true;
  }
  if (sequence.text->push(chosen.token)) {
    completion.finish_reason = FinishReason::stop;
    return true;
  }
  completion.finish_reason = FinishReason::length;
  return static_cast<std::int64_t>(completion.tokens.size()) == request.max_new_tokens;
}

void Coordinator::finish(std::int64_t index, Sequence& sequence) {
  sequence.text->finish();
  if (sequence.text->stopped()) {
    sequence.completion.finish_reason = FinishReason::stop;
  }
  sink_.write(requests_[static_cast<std::size_t>(index)], sequence.completion,
              sequence.text->text());
  progress_.add_finished_request();
  alive_.erase(index);
}

}  // namespace stagecoach::job
