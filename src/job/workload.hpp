#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "job/completion_sink.hpp"
#include "job/config.hpp"
#include "job/model_access.hpp"
#include "job/run_report.hpp"
#include "model/tokenizer.hpp"

namespace stagecoach::job {

/// What a job is there for, known to rank 0 alone: its requests, and where they go when they are
/// finished.
class Workload {
 public:
  Workload() = default;
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;
  Workload(Workload&&) = delete;
  Workload& operator=(Workload&&) = delete;
  virtual ~Workload() = default;

  [[nodiscard]] virtual const std::vector<Request>& requests() const = 0;
  /// Bad lines of the input that were skipped.
  [[nodiscard]] virtual std::int64_t skipped() const = 0;
  /// Of every token that is chosen or scored; see device::SampleSpec.
  [[nodiscard]] virtual std::int32_t num_logprobs() const = 0;
  /// nullptr for a model without one.
  [[nodiscard]] virtual const model::Tokenizer* tokenizer() const = 0;

  /// Makes the output, and the sink.
  virtual void open_output() = 0;
  /// After open_output.
  [[nodiscard]] virtual CompletionSink& sink() = 0;
  /// When every request is finished: brings the output to the disk.
  virtual void finish(RunReport& report) = 0;
};

/// Reads the inputs. `model` must outlive the workload. `arithmetic` is the device's.
std::unique_ptr<Workload> read_workload(const JobConfig& config, const ModelAccess& model,
                                        const std::string& arithmetic, const Log& log);

/// Nothing for a model without one.
std::optional<model::Tokenizer> tokenizer_of(const ModelAccess& model);

/// --overwrite must not empty what the job reads: ConfigError if `output`, named by `flag`, is one
/// of `inputs`.
void refuse_to_overwrite(const std::string& output, const std::string& flag,
                         const std::vector<std::string>& inputs);

/// The workload of `eval`.
std::unique_ptr<Workload> read_eval_workload(const JobConfig& config, const ModelAccess& model,
                                             const std::string& arithmetic, const Log& log);

}  // namespace stagecoach::job
