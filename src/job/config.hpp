#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/compression.hpp"
#include "job/eval_config.hpp"
#include "job/request.hpp"
#include "model/spec.hpp"
#include "offload/disk_stream.hpp"
#include "stage/batch_shape.hpp"
#include "stage/policy.hpp"

namespace stagecoach::job {

/// `automatic` is MPI, with hidden states over NCCL where that can be; `mpi` and `nccl` ask for
/// one.
enum class TransportKind { automatic, mpi, nccl, loopback };

/// Everything that a `run` or an `eval` was asked to do. Rank 0 reads it and sends it to the
/// others.
struct JobConfig {
  std::string model_path;                   ///< weight store; empty with dummy weights
  std::optional<std::uint64_t> dummy_seed;  ///< weights from the generator, shapes from dummy_spec
  model::ModelSpec dummy_spec;
  std::string tokenizer_path;  ///< folder that replaces the store's tokenizer; may be empty

  std::optional<EvalConfig> eval;  ///< nothing: a `run`
  // Of a `run`:
  std::string prompts_path;  ///< "-": standard input
  std::string output_path;   ///< "-": standard output
  bool ordered = false;
  RequestDefaults defaults;
  std::int32_t num_logprobs = -1;  ///< -1: none
  bool prompt_logprobs = false;

  bool overwrite = false;
  bool skip_bad_requests = false;
  TransportKind transport = TransportKind::loopback;
  int stages = 1;  ///< loopback only; else the number of ranks
  std::vector<std::int64_t> layers_per_stage;
  stage::BatchShape batch;
  Compression compression;
  bool inner_iterations_given = false;  ///< else enough to fill the pipeline

  std::string device = "auto";  ///< "host", "cuda", "cuda:N" or "auto": see job/stage_device.hpp
  int threads = 0;              ///< a stage; 0: this machine's CPUs shared out
  std::string isa = "auto";
  std::vector<stage::Policy> policies = {{}};  ///< one for all stages, or one each
  stage::ScheduleKind schedule = stage::ScheduleKind::rolling;
  bool overlap = true;
  offload::DiskBackend disk_backend = offload::DiskBackend::automatic;
  double timeout_seconds = 1800;
  bool dry_run = false;
  bool report_whole_job = false;  ///< rank 0 hears what all stages did, to compare it
  std::string log_level = "info";
  std::uint64_t test_delay_seed = 0;  ///< for tests: streams sleep random times; 0: never
  bool test_staging = false;          ///< for tests: treat the host's device as a GPU

  [[nodiscard]] const stage::Policy& policy(int stage) const {
    return policies.size() == 1 ? policies.front() : policies.at(static_cast<std::size_t>(stage));
  }
};

/// One-line JSON and back, for the wire and for --dry-run.
std::string to_json(const JobConfig& config);
JobConfig config_from_json(const std::string& text);

/// ConfigError naming the flag whose value makes no sense by itself or beside another.
void validate(const JobConfig& config);

}  // namespace stagecoach::job
