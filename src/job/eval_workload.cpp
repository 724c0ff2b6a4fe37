#include <span>
#include <utility>

#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/staged_file.hpp"
#include "job/eval_report.hpp"
#include "job/workload.hpp"

namespace stagecoach::job {
namespace {

class EvalWorkload : public Workload {
 public:
  EvalWorkload(const JobConfig& config, const ModelAccess& model, const std::string& arithmetic,
               const Log& log)
      : config_(config),
        origin_{.version = STAGECOACH_VERSION,
                .model_name = model.spec.name,
                .model_digest = hash_to_hex(model.digest),
                .arithmetic = arithmetic,
                .configuration = to_json(config)},
        tokenizer_(tokenizer_of(model)) {
    const auto& eval = *config.eval;
    const std::vector<std::string> inputs = {eval.perplexity_path, eval.last_word_path,
                                             eval.logprobs_path, config.model_path};
    refuse_to_overwrite(eval.report_path, "--output", inputs);
    refuse_to_overwrite(eval.logprobs_output_path, "--logprobs-output", inputs);
    job_ =
        read_eval_job(eval, {.spec = model.spec,
                             .tokenizer = tokenizer(),
                             .on_error = config.skip_bad_requests ? OnError::skip : OnError::stop,
                             .log = log});
  }

  [[nodiscard]] const std::vector<Request>& requests() const override { return job_.requests; }
  [[nodiscard]] std::int64_t skipped() const override {
    return job_.last_word.skipped + job_.logprobs.skipped;
  }
  /// The likeliest token beside the scored one tells whether they are the same.
  [[nodiscard]] std::int32_t num_logprobs() const override { return 1; }
  [[nodiscard]] const model::Tokenizer* tokenizer() const override {
    return tokenizer_ ? &*tokenizer_ : nullptr;
  }

  void open_output() override {
    const auto& eval = *config_.eval;
    if (!eval.report_path.empty()) {
      report_.emplace(eval.report_path, config_.overwrite);
    }
    if (!eval.logprobs_output_path.empty()) {
      lines_.emplace(LineFileOptions{.path = eval.logprobs_output_path,
                                     .overwrite = config_.overwrite,
                                     .flag = "--logprobs-output"});
    }
    scores_ = std::make_unique<EvalScores>(job_, lines_ ? &*lines_ : nullptr);
  }

  [[nodiscard]] CompletionSink& sink() override { return *scores_; }

  void finish(RunReport& report) override {
    if (lines_) {
      lines_->close();
    }
    report.eval = make_report(*config_.eval, job_, scores_->scores());
    if (report_) {
      const auto text = format_report(*report.eval, origin_);
      const File file(report_->temporary_path(), File::Mode::create);
      file.write_at(std::as_bytes(std::span(text)), 0);
      report_->commit();
    }
  }

 private:
  const JobConfig config_;
  const EvalOrigin origin_;
  std::optional<model::Tokenizer> tokenizer_;
  EvalJob job_;
  std::optional<StagedFile> report_;
  std::optional<LineFile> lines_;
  std::unique_ptr<EvalScores> scores_;
};

}  // namespace

std::unique_ptr<Workload> read_eval_workload(const JobConfig& config, const ModelAccess& model,
                                             const std::string& arithmetic, const Log& log) {
  return std::make_unique<EvalWorkload>(config, model, arithmetic, log);
}

}  // namespace stagecoach::job
