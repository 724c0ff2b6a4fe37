#include "model/convert.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/ini_file.hpp"
#include "base/units.hpp"
#include "cli/commands.hpp"
#include "cli/options.hpp"
#include "cli/progress_bar.hpp"

namespace stagecoach::cli {
namespace {

constexpr const char* kUsage =
    "usage: stagecoach convert --from FOLDER --to FILE [--quantize int4|int8] [--overwrite]\n"
    "       stagecoach convert --dummy SEED --spec INI --to FILE [--quantize int4|int8] "
    "[--overwrite]\n\n"
    "Makes a model's weight store, the one file that 'stagecoach run' reads: from a Hugging Face\n"
    "checkpoint, or with dummy weights of a model description. --quantize packs its matrices.";

po::options_description describe() {
  po::options_description described("options");
  auto add = described.add_options();
  add("from", po::value<std::string>()->value_name("FOLDER"),
      "Hugging Face checkpoint: config.json, model.safetensors or its shards and index, and "
      "vocab.json with merges.txt");
  add("to", po::value<std::string>()->value_name("FILE"), "weight store to make");
  add("dummy", po::value<std::string>()->value_name("SEED"),
      "make up the weights; the same seed gives the same bytes everywhere");
  add("spec", po::value<std::string>()->value_name("INI"),
      "model description for --dummy, as configs/models/opt-125m.ini");
  add("quantize", po::value<std::string>()->value_name("PACKING")->default_value("none"),
      "pack the layers' matrices: int4, int8 or none (f16)");
  add("quantize-group", po::value<std::int64_t>()->value_name("N")->default_value(64),
      "numbers that share a minimum and a scale: 32, 64 or 128");
  add("quantize-embeddings", po::bool_switch(), "pack the token table and the head too");
  add("overwrite", po::bool_switch(), "replace FILE if it exists");
  return described;
}

model::WeightFormat read_weight_format(const Options& options) {
  const PackFormat layers{parse_packing(options.text("quantize"), "--quantize"),
                          options.get<std::int64_t>("quantize-group")};
  if (std::count(kPackGroups.begin(), kPackGroups.end(), layers.group) == 0) {
    throw ConfigError(fmt::format("--quantize-group {}: must be one of {}", layers.group,
                                  fmt::join(kPackGroups, ", ")));
  }
  const bool embeddings = options.flag("quantize-embeddings");
  if (!layers.packed() && (embeddings || options.given("quantize-group"))) {
    throw ConfigError(
        "--quantize-group and --quantize-embeddings need --quantize int4 or --quantize int8");
  }
  return {layers, embeddings};
}

model::ConvertReport convert(const Options& options) {
  options.exclude("from", "dummy");
  options.exclude("from", "spec");
  const auto& to = options.text("to");
  const bool overwrite = options.flag("overwrite");
  const auto weights = read_weight_format(options);
  ProgressBar bar("converting");
  const auto progress = [&bar](std::uint64_t done, std::uint64_t total) { bar.show(done, total); };
  if (options.given("from")) {
    return model::convert_checkpoint(options.text("from"), to, overwrite, progress, weights);
  }
  if (!options.given("dummy")) {
    throw ConfigError("convert: give --from FOLDER, or --dummy SEED with --spec INI");
  }
  const auto seed = parse_unsigned(options.text("dummy"), "--dummy");
  const auto& path = options.text("spec");
  const auto spec = model::spec_from_settings(read_ini_file(path), path);
  return model::convert_dummy(spec, seed, to, overwrite, progress, weights);
}

}  // namespace

int convert_command(const std::vector<std::string>& arguments) {
  const auto options = parse_options("convert", kUsage, describe(), arguments);
  if (!options) {
    return 0;
  }
  const auto report = convert(*options);
  for (const auto& warning : report.warnings) {
    fmt::print(stderr, "warning: {}\n", warning);
  }
  fmt::print("{}: {}, {} layers, {} parameters{}, {}, made in {}\n", options->text("to"),
             format_bytes(report.size_bytes), report.spec.layers,
             model::parameter_count(report.spec),
             report.weights.packed() ? " in " + model::describe(report.weights) : "",
             report.has_tokenizer ? "with its tokenizer" : "without a tokenizer",
             format_seconds(report.seconds));
  return 0;
}

}  // namespace stagecoach::cli
