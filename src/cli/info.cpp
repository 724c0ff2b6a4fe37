#include <fmt/format.h>

#include <optional>

#include "base/ini_file.hpp"
#include "base/units.hpp"
#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/progress_bar.hpp"
#include "comm/nccl_transport.hpp"
#include "device/cuda/cuda_devices.hpp"
#include "model/spec.hpp"
#include "model/weight_store.hpp"

namespace stagecoach::cli {
namespace {

constexpr const char* kUsage =
    "usage: stagecoach info --model FILE [--verify] [--batch N --prompt-len P --gen-len G]\n"
    "       stagecoach info --spec INI [--batch N --prompt-len P --gen-len G]\n"
    "       stagecoach info --devices\n\n"
    "Prints a model's shapes and sizes and the memory that a batch takes. --verify reads every "
    "weight\n"
    "and compares its checksum.";

constexpr std::int64_t kMaxBatch = 1'000'000'000;

po::options_description describe() {
  po::options_description described("options");
  auto add = described.add_options();
  add("model", po::value<std::string>()->value_name("FILE"), "weight store");
  add("spec", po::value<std::string>()->value_name("INI"),
      "model description, as configs/models/opt-125m.ini");
  add("devices", po::bool_switch(),
      "the GPUs of this machine, and whether this build can use them");
  add("verify", po::bool_switch(), "read all weights and compare their checksums");
  add("batch", po::value<std::int64_t>()->value_name("N"), "sequences that are in memory together");
  add("prompt-len", po::value<std::int64_t>()->value_name("P"), "tokens of each prompt");
  add("gen-len", po::value<std::int64_t>()->value_name("G"), "tokens generated for each");
  return described;
}

std::string bytes_text(std::int64_t bytes) {
  return fmt::format("{} ({} bytes)", format_bytes(static_cast<std::size_t>(bytes)), bytes);
}

void print_line(const char* name, const std::string& value) {
  fmt::print("{:<20} {}\n", name, value);
}

std::int64_t total_bytes(const std::vector<model::TensorSpec>& tensors) {
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors) {
    bytes += tensor.size_bytes();
  }
  return bytes;
}

void print_tensors(const char* group, const std::vector<model::TensorSpec>& tensors) {
  for (const auto& tensor : tensors) {
    fmt::print("  {:<11} {:<18} {:<16} {:>12} bytes  {}\n", group, tensor.name,
               fmt::format("[{}]", fmt::join(tensor.shape, ", ")), tensor.size_bytes(),
               describe(tensor.format));
  }
}

void print_model(const model::ModelSpec& spec, const model::WeightFormat& weights) {
  print_line("model", spec.name.empty() ? spec.family : spec.name);
  print_line("family", spec.family);
  print_line("parameters", fmt::format("{}", model::parameter_count(spec)));
  print_line("layers", fmt::format("{}", spec.layers));
  print_line("hidden", fmt::format("{}", spec.hidden));
  print_line("heads", fmt::format("{} of {}", spec.heads, spec.head_dim));
  print_line("ffn", fmt::format("{}", spec.ffn));
  print_line("vocabulary", fmt::format("{}", spec.vocab));
  print_line("longest sequence", fmt::format("{} tokens", spec.max_positions));
  print_line("weights", bytes_text(model::weight_bytes(spec, weights)));
  print_line("  format", model::describe(weights));
  print_line("  a layer", bytes_text(model::layer_bytes(spec, weights)));
  print_line("  embedding", bytes_text(total_bytes(model::embedding_tensors(spec, weights))));
  print_line("  head", bytes_text(total_bytes(model::head_tensors(spec, weights))) +
                           (spec.tied_head ? ", and the embedding's token table" : ""));
  const auto kv_bytes = model::kv_bytes_per_token_and_layer(spec);
  print_line("KV cache a token", bytes_text(spec.layers * kv_bytes));
  print_line("  in one layer", bytes_text(kv_bytes));
  fmt::print("tensors\n");
  print_tensors("embedding", model::embedding_tensors(spec, weights));
  print_tensors("each layer", model::layer_tensors(spec, weights));
  print_tensors("head", model::head_tensors(spec, weights));
}

struct Batch {
  std::int64_t sequences = 0;
  std::int64_t prompt_len = 0;
  std::int64_t gen_len = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t kv_bytes = 0;
  std::int64_t total_bytes = 0;
};

/// The batch that the user asks about, if any.
std::optional<Batch> read_batch(const model::ModelSpec& spec, const model::WeightFormat& weights,
                                const Options& options) {
  if (!options.given("batch") && !options.given("prompt-len") && !options.given("gen-len")) {
    return std::nullopt;
  }
  Batch batch;
  batch.sequences = options.integer("batch", 1, kMaxBatch);
  batch.prompt_len = options.integer("prompt-len", 1, spec.max_positions);
  batch.gen_len = options.integer("gen-len", 1, spec.max_positions);
  const auto tokens = batch.prompt_len + batch.gen_len;
  if (tokens > spec.max_positions) {
    throw ConfigError(
        fmt::format("--prompt-len {} and --gen-len {}: the model's longest sequence is {} tokens",
                    batch.prompt_len, batch.gen_len, spec.max_positions));
  }
  batch.weight_bytes = model::weight_bytes(spec, weights);
  const auto sequence_bytes = tokens * spec.layers * model::kv_bytes_per_token_and_layer(spec);
  if (__builtin_mul_overflow(batch.sequences, sequence_bytes, &batch.kv_bytes) ||
      __builtin_add_overflow(batch.kv_bytes, batch.weight_bytes, &batch.total_bytes)) {
    throw ConfigError(
        fmt::format("--batch {}: its KV cache is beyond any machine", batch.sequences));
  }
  return batch;
}

void print_batch(const Batch& batch) {
  fmt::print("memory for a batch of {} sequences of {} + {} tokens\n", batch.sequences,
             batch.prompt_len, batch.gen_len);
  print_line("  weights", bytes_text(batch.weight_bytes));
  print_line("  KV cache", bytes_text(batch.kv_bytes));
  print_line("  together", bytes_text(batch.total_bytes));
}

void print_all(const model::ModelSpec& spec, const model::WeightFormat& weights,
               const Options& options) {
  const auto batch = read_batch(spec, weights, options);
  print_model(spec, weights);
  if (batch) {
    print_batch(*batch);
  }
}

void print_store(const model::StoreIndex& index) {
  print_line("store", index.path);
  print_line("tokenizer", index.tokenizer.vocab_json.empty() ? "none: prompts must be token ids"
                                                             : "byte-level BPE");
  print_line("digest", fmt::format("{:016x}", index.digest()));
}

void print_devices() {
  print_line("CUDA", device::cuda_status());
  print_line("NCCL", comm::nccl_status());
  for (const auto& gpu : device::cuda_devices()) {
    fmt::print("  cuda:{:<15} {}, sm_{}{}, {}, {}\n", gpu.index, gpu.name, gpu.compute_major,
               gpu.compute_minor, format_bytes(gpu.memory_bytes), gpu.pci_bus_id);
  }
}

void verify(const model::StoreIndex& index) {
  std::vector<std::string> differing;
  {
    ProgressBar bar("verifying");
    differing = model::verify_store(
        index, [&bar](std::uint64_t done, std::uint64_t total) { bar.show(done, total); });
  }
  if (!differing.empty()) {
    for (const auto& name : differing) {
      fmt::print("differs from its checksum: {}\n", name);
    }
    throw Error(fmt::format("{} is damaged: tensors that differ from their checksums: {}, first {}",
                            index.path, differing.size(), differing.front()));
  }
  fmt::print("every weight matches its checksum\n");
}

}  // namespace

int info_command(const std::vector<std::string>& arguments) {
  const auto options = parse_options("info", kUsage, describe(), arguments);
  if (!options) {
    return 0;
  }
  if (options->flag("devices")) {
    print_devices();
    return 0;
  }
  options->exclude("model", "spec");
  if (options->given("spec")) {
    if (options->flag("verify")) {
      throw ConfigError("--verify needs --model FILE: a --spec has no weights");
    }
    const auto& path = options->text("spec");
    const auto spec = model::spec_from_settings(read_ini_file(path), path);
    print_all(spec, {}, *options);
    return 0;
  }
  if (!options->given("model")) {
    throw ConfigError("info: give --model FILE or --spec INI");
  }
  const auto index = model::read_store_index(options->text("model"));
  print_store(index);
  print_all(index.spec, index.weights, *options);
  if (options->flag("verify")) {
    verify(index);
  }
  return 0;
}

}  // namespace stagecoach::cli
