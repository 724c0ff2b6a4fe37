#include "cli/job_options.hpp"

#include <algorithm>
#include <cstdint>

#include "base/error.hpp"
#include "base/ini_file.hpp"
#include "cli/batch_options.hpp"
#include "cli/compression_options.hpp"
#include "cli/policy_options.hpp"

namespace stagecoach::cli {
namespace {

using Integer = std::int64_t;
using Text = std::string;

/// An option of type T whose default is shown by --help.
template <typename T>
po::typed_value<T>* with_default(T value) {
  return po::value<T>()->default_value(std::move(value));
}

po::options_description stage_options() {
  po::options_description group("Stages");
  group.add_options()("transport", with_default<Text>("auto"),
                      "mpi, nccl (MPI, with hidden states over NCCL), loopback (stages are "
                      "threads), or auto")("device", with_default<Text>("auto"),
                                           "host, cuda, cuda:N or auto: a GPU where there is one")(
      "stages", po::value<Integer>(), "with loopback: number of stages (1)")(
      "layers-per-stage", po::value<Text>(), "like 3,3,2; default: as even as can be")(
      "threads", with_default<Integer>(0), "a stage; 0 shares out this machine's CPUs")(
      "isa", with_default<Text>("auto"), "widest instructions: auto, avx2 or avx512")(
      "timeout", with_default<double>(1800), "seconds that a rank waits for a message at most");
  return group;
}

po::options_description disk_options() {
  po::options_description group("Disk, and tests");
  group.add_options()("disk-io", with_default<Text>("auto"),
                      "how disks are read and written: auto, uring or threads")(
      "test-delays", with_default<Text>("0"), "SEED: every queue sleeps random times; 0: never")(
      "test-staging", po::bool_switch(), "copy to the CPU's device as one must to a GPU");
  return group;
}

void read_model(const Options& options, job::JobConfig& config) {
  if (options.has("model")) {
    config.model_path = options.text("model");
  }
  if (options.has("dummy") != options.has("spec")) {
    throw ConfigError("--dummy and --spec go together: give both or neither");
  }
  if (options.has("dummy")) {
    config.dummy_seed = parse_unsigned(options.text("dummy"), "--dummy");
    const auto& path = options.text("spec");
    config.dummy_spec = model::spec_from_settings(read_ini_file(path), path);
  }
  if (options.has("tokenizer")) {
    config.tokenizer_path = options.text("tokenizer");
  }
}

void read_batch(const Options& options, job::JobConfig& config) {
  config.batch = read_batch_shape(options);
  config.inner_iterations_given = config.batch.inner_iterations > 0;
  config.batch.inner_iterations = std::max<Integer>(config.batch.inner_iterations, 1);
}

void read_transport(const Options& options, int launched_ranks, job::JobConfig& config) {
  using Kind = job::TransportKind;
  const auto automatic = launched_ranks > 1 ? Kind::automatic : Kind::loopback;
  config.transport = one_of<Kind>(options, "transport",
                                  {{"auto", automatic},
                                   {"mpi", Kind::mpi},
                                   {"nccl", Kind::nccl},
                                   {"loopback", Kind::loopback}});
  if (options.has("stages")) {
    config.stages = static_cast<int>(options.integer("stages", 1, 4096));
  }
  if (config.transport == Kind::loopback && launched_ranks > 1) {
    throw ConfigError(fmt::format(
        "--transport loopback: runs in one process, but {} were launched; leave mpirun out",
        launched_ranks));
  }
  const bool launched = config.transport != Kind::loopback;
  if (launched && options.has("stages") && config.stages != launched_ranks) {
    throw ConfigError(fmt::format(
        "--stages {}: with mpi there is a stage a rank, and {} were launched; use mpirun -n {}",
        config.stages, launched_ranks, config.stages));
  }
  if (launched) {
    config.stages = launched_ranks;
  }
}

void read_stages(const Options& options, job::JobConfig& config) {
  if (options.has("layers-per-stage")) {
    config.layers_per_stage = parse_integers(options.text("layers-per-stage"), "layers-per-stage");
  }
  config.device = options.text("device");
  config.threads = static_cast<int>(options.integer("threads", 0, 4096));
  config.isa =
      one_of<Text>(options, "isa", {{"auto", "auto"}, {"avx2", "avx2"}, {"avx512", "avx512"}});
  config.policies = read_policies(options, config.stages);
  config.schedule = stage::parse_schedule(options.text("schedule"), "--schedule");
  config.overlap = !options.flag("no-overlap");
  config.timeout_seconds = options.get<double>("timeout");
}

void read_disk(const Options& options, job::JobConfig& config) {
  config.disk_backend = one_of<offload::DiskBackend>(options, "disk-io",
                                                     {{"auto", offload::DiskBackend::automatic},
                                                      {"uring", offload::DiskBackend::uring},
                                                      {"threads", offload::DiskBackend::threads}});
  config.test_delay_seed = parse_unsigned(options.text("test-delays"), "--test-delays");
  config.test_staging = options.flag("test-staging");
}

}  // namespace

po::options_description model_options() {
  po::options_description group("Model");
  group.add_options()("config", po::value<Text>(),
                      "ini file with any of these options; the command line wins")(
      "model", po::value<Text>(), "weight store made by 'stagecoach convert'")(
      "dummy", po::value<Text>(), "SEED: generated weights in place of a store; needs --spec")(
      "spec", po::value<Text>(), "ini file of configs/models with the shapes of --dummy")(
      "tokenizer", po::value<Text>(),
      "folder with vocab.json and merges.txt, instead of the store's")(
      "dry-run", po::bool_switch(), "show stages and memory, check the inputs, then stop")(
      "log-level", with_default<Text>("info"), "debug, info, warning, error or off");
  return group;
}

void add_pipeline_options(po::options_description& all) {
  all.add(stage_options())
      .add(batch_options())
      .add(compression_options())
      .add(policy_options())
      .add(disk_options());
}

void read_job_options(const Options& options, int launched_ranks, job::JobConfig& config) {
  read_model(options, config);
  config.overwrite = options.flag("overwrite");
  config.skip_bad_requests = one_of<bool>(options, "on-error", {{"skip", true}, {"stop", false}});
  config.dry_run = options.flag("dry-run");
  config.log_level = options.text("log-level");
  read_batch(options, config);
  config.compression = read_compression(options);
  read_transport(options, launched_ranks, config);
  read_stages(options, config);
  read_disk(options, config);
}

}  // namespace stagecoach::cli
