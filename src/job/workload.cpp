#include "job/workload.hpp"

#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "job/request_reader.hpp"
#include "job/result_writer.hpp"

namespace stagecoach::job {
namespace {

/// That of `run`.
class RunWorkload : public Workload {
 public:
  RunWorkload(const JobConfig& config, const ModelAccess& model, const Log& log)
      : config_(config), tokenizer_(tokenizer_of(model)) {
    refuse_to_overwrite(config.output_path, "--output", {config.prompts_path, config.model_path});
    list_ = read_requests(config.prompts_path, config.defaults, model.spec, tokenizer(),
                          config.skip_bad_requests ? OnError::skip : OnError::stop, log);
    if (config.prompt_logprobs) {
      for (auto& request : list_.requests) {
        request.score_from = 1;
      }
    }
  }

  [[nodiscard]] const std::vector<Request>& requests() const override { return list_.requests; }
  [[nodiscard]] std::int64_t skipped() const override { return list_.skipped; }
  [[nodiscard]] std::int32_t num_logprobs() const override { return config_.num_logprobs; }
  [[nodiscard]] const model::Tokenizer* tokenizer() const override {
    return tokenizer_ ? &*tokenizer_ : nullptr;
  }

  void open_output() override {
    writer_ = std::make_unique<ResultWriter>(
        ResultWriterOptions{.path = config_.output_path,
                            .overwrite = config_.overwrite,
                            .ordered = config_.ordered,
                            .logprobs = config_.num_logprobs >= 0,
                            .prompt_logprobs = config_.prompt_logprobs},
        tokenizer());
  }

  [[nodiscard]] CompletionSink& sink() override { return *writer_; }

  void finish(RunReport& /*report*/) override {
    writer_->close();
    if (config_.ordered) {
      write_ordered(config_.output_path, list_.requests, config_.overwrite);
    }
  }

 private:
  const JobConfig config_;
  std::optional<model::Tokenizer> tokenizer_;
  RequestList list_;
  std::unique_ptr<ResultWriter> writer_;
};

}  // namespace

std::unique_ptr<Workload> read_workload(const JobConfig& config, const ModelAccess& model,
                                        const std::string& arithmetic, const Log& log) {
  if (config.eval) {
    return read_eval_workload(config, model, arithmetic, log);
  }
  return std::make_unique<RunWorkload>(config, model, log);
}

std::optional<model::Tokenizer> tokenizer_of(const ModelAccess& model) {
  if (model.tokenizer.vocab_json.empty()) {
    return std::nullopt;
  }
  return std::make_optional<model::Tokenizer>(model.tokenizer, model.spec.vocab);
}

void refuse_to_overwrite(const std::string& output, const std::string& flag,
                         const std::vector<std::string>& inputs) {
  for (const auto& input : inputs) {
    std::error_code missing;
    if (std::filesystem::equivalent(output, input, missing) && !missing) {
      throw ConfigError(
          fmt::format("{} {} is also an input of the job: choose another file", flag, output));
    }
  }
}

}  // namespace stagecoach::job
