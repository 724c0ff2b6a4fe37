#include "cli/compression_options.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace stagecoach::cli {
namespace {

using Text = std::string;

std::int64_t read_group(const Options& options) {
  const auto group = options.integer("compress-group", 32, 128);
  if (std::count(kPackGroups.begin(), kPackGroups.end(), group) == 0) {
    throw ConfigError(
        fmt::format("--compress-group {}: must be one of {}", group, fmt::join(kPackGroups, ", ")));
  }
  return group;
}

}  // namespace

po::options_description compression_options() {
  po::options_description group("Compression and approximation");
  group.add_options()("compress-weights", po::value<Text>(),
                      "int4, int8 or none: weights in groups of small integers (as the store has "
                      "them; a f16 store's are packed while they are read)")(
      "compress-cache", po::value<Text>()->default_value("none"),
      "int4, int8 or none: the KV cache likewise")("compress-group",
                                                   po::value<std::int64_t>()->default_value(64),
                                                   "numbers of a group: 32, 64 or 128")(
      "compress-embeddings", po::bool_switch(),
      "pack the token table and the head too, which costs more accuracy")(
      "attention-sparsity", po::value<double>()->default_value(1),
      "share of the earlier tokens whose values a generated token reads, those with the highest "
      "scores; 1: all")("kv-dtype", po::value<Text>()->default_value("f16"),
                        "of a KV cache that is not compressed: f16 or f32");
  return group;
}

job::Compression read_compression(const Options& options) {
  job::Compression compression;
  compression.group = read_group(options);
  compression.embeddings = options.flag("compress-embeddings");
  if (options.has("compress-weights")) {
    compression.weights = parse_packing(options.text("compress-weights"), "--compress-weights");
  }
  return compression;
}

device::KvFormat read_kv_format(const Options& options) {
  const auto& dtype = options.text("kv-dtype");
  if (dtype != "f16" && dtype != "f32") {
    throw ConfigError(fmt::format("--kv-dtype {}: must be one of f16, f32", dtype));
  }
  switch (parse_packing(options.text("compress-cache"), "--compress-cache")) {
    case Packing::none:
      return dtype == "f16" ? device::KvType::f16 : device::KvType::f32;
    case Packing::int8:
      options.exclude("compress-cache", "kv-dtype");
      return {device::KvType::int8, read_group(options)};
    case Packing::int4:
      options.exclude("compress-cache", "kv-dtype");
      return {device::KvType::int4, read_group(options)};
  }
  return {};
}

double read_attention_sparsity(const Options& options) {
  const auto sparsity = options.get<double>("attention-sparsity");
  if (!(sparsity > 0 && sparsity <= 1)) {
    throw ConfigError(
        fmt::format("--attention-sparsity {}: must be above 0 and at most 1 (all)", sparsity));
  }
  return sparsity;
}

}  // namespace stagecoach::cli
