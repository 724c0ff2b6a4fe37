#include "model/convert.hpp"

#include <fmt/core.h>

#include "base/units.hpp"
#include "cli/commands.hpp"
#include "cli/ini_file.hpp"
#include "cli/options.hpp"
#include "cli/progress_bar.hpp"

namespace stagecoach::cli {
namespace {

constexpr const char* kUsage =
    "usage: stagecoach convert --from FOLDER --to FILE [--overwrite]\n"
    "       stagecoach convert --dummy SEED --spec INI --to FILE [--overwrite]\n\n"
    "Makes a model's weight store, the one file that 'stagecoach run' reads: from a Hugging Face\n"
    "checkpoint, or with dummy weights of a model description.";

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
  add("overwrite", po::bool_switch(), "replace FILE if it exists");
  return described;
}

model::ConvertReport convert(const Options& options) {
  options.exclude("from", "dummy");
  options.exclude("from", "spec");
  const auto& to = options.text("to");
  const bool overwrite = options.flag("overwrite");
  ProgressBar bar("converting");
  const auto progress = [&bar](std::uint64_t done, std::uint64_t total) { bar.show(done, total); };
  if (options.given("from")) {
    return model::convert_checkpoint(options.text("from"), to, overwrite, progress);
  }
  if (!options.given("dummy")) {
    throw ConfigError("convert: give --from FOLDER, or --dummy SEED with --spec INI");
  }
  const auto seed = parse_unsigned(options.text("dummy"), "--dummy");
  const auto& path = options.text("spec");
  const auto spec = model::spec_from_settings(read_ini_file(path), path);
  return model::convert_dummy(spec, seed, to, overwrite, progress);
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
  fmt::print("{}: {}, {} layers, {} parameters, {}, made in {}\n", options->text("to"),
             format_bytes(report.size_bytes), report.spec.layers,
             model::parameter_count(report.spec),
             report.has_tokenizer ? "with its tokenizer" : "without a tokenizer",
             format_seconds(report.seconds));
  return 0;
}

}  // namespace stagecoach::cli
