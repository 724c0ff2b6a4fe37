#include "cli/policy_options.hpp"

#include <fmt/ranges.h>

#include <map>
#include <sstream>
#include <string>

#include "base/ini_file.hpp"
#include "base/units.hpp"

namespace stagecoach::cli {
namespace {

using Text = std::string;
using Settings = std::map<std::string, std::string>;

stage::Switch parse_switch(const std::string& text, const std::string& flag) {
  if (text == "on") {
    return stage::Switch::on;
  }
  if (text == "off") {
    return stage::Switch::off;
  }
  if (text == "auto") {
    return stage::Switch::automatic;
  }
  throw ConfigError(fmt::format("{} {}: must be on, off or auto", flag, text));
}

/// Takes one setting into the policy; false: there is none of that name.
bool set(stage::Policy& policy, const std::string& key, const std::string& value,
         const std::string& flag) {
  if (key == "percent") {
    policy.percent = stage::parse_percent(value, flag);
  } else if (key == "device-mem") {
    policy.device_mem_bytes = parse_bytes(value, flag);
  } else if (key == "cpu-mem") {
    policy.cpu_mem_bytes = parse_bytes(value, flag);
  } else if (key == "pinned-mem") {
    policy.pinned_mem_bytes = parse_bytes(value, flag);
  } else if (key == "disk-mem") {
    policy.disk_mem_bytes = parse_bytes(value, flag);
  } else if (key == "offload-dir") {
    policy.offload_dir = value;
  } else if (key == "pin-weights") {
    policy.pin_weights = parse_switch(value, flag);
  } else if (key == "cpu-attention") {
    policy.cpu_attention = parse_switch(value, flag);
  } else if (key == "widen-weights") {
    policy.widen_weights = parse_switch(value, flag);
  } else if (key == "weight-buffers") {
    policy.weight_buffers = static_cast<std::int64_t>(parse_unsigned(value, flag));
  } else {
    return false;
  }
  return true;
}

constexpr const char* kKeys[] = {"percent",       "device-mem",    "cpu-mem",     "pinned-mem",
                                 "disk-mem",      "offload-dir",   "pin-weights", "cpu-attention",
                                 "widen-weights", "weight-buffers"};

stage::Policy with(stage::Policy policy, const Settings& settings, const std::string& where) {
  for (const auto& [key, value] : settings) {
    if (!set(policy, key, value, fmt::format("{}: {}", where, key))) {
      throw ConfigError(fmt::format("{}: {} is no part of a policy; these are: {}", where, key,
                                    fmt::join(kKeys, ", ")));
    }
  }
  return policy;
}

/// A policy a file; or one file, with a policy a section.
std::vector<stage::Policy> read_files(const std::string& names, const stage::Policy& base) {
  std::vector<std::string> paths;
  std::istringstream in(names);
  for (std::string path; std::getline(in, path, ',');) {
    paths.push_back(path);
  }
  std::vector<stage::Policy> policies;
  for (const auto& path : paths) {
    for (const auto& section : read_ini_sections(path)) {
      const auto where = section.name.empty() ? path : fmt::format("{} [{}]", path, section.name);
      policies.push_back(with(base, section.settings, where));
    }
  }
  return policies;
}

}  // namespace

po::options_description policy_options() {
  po::options_description group("Where a stage keeps what");
  group.add_options()("percent", po::value<std::vector<Text>>()->multitoken(),
                      "WG WC CG CC HG HC: per cent of weights, cache and activations on device and "
                      "CPU, the rest on disk (100 0 100 0 100 0)")(
      "device-mem", po::value<Text>(), "device memory of a stage, like 16GiB (what is free)")(
      "cpu-mem", po::value<Text>(), "DRAM beside it (what is free)")(
      "pinned-mem", po::value<Text>(), "of that, what may be pinned (what the system allows)")(
      "disk-mem", po::value<Text>(), "disk space for cache and activations (what is free)")(
      "offload-dir", po::value<Text>(), "folder for cache and activations on disk")(
      "pin-weights", po::value<Text>()->default_value("auto"),
      "keep weights in DRAM from being paged out: on, off or auto")(
      "cpu-attention", po::value<Text>()->default_value("auto"),
      "attend to pages in DRAM where they are: on, off or auto")(
      "widen-weights", po::value<Text>()->default_value("auto"),
      "widen packed weights once a visit, for all its GPU batches: on, off or auto")(
      "weight-buffers", po::value<Text>()->default_value("0"),
      "layers of streamed weights on the device; 0: as many as fit, at most 3")(
      "stage-policy", po::value<Text>(),
      "ini files with any of the above, one a stage, with commas; or one file with a section a "
      "stage")("schedule", po::value<Text>()->default_value("rolling"),
               "rolling, zigzag, row or flexgen")(
      "no-overlap", po::bool_switch(), "one step after the other, to see what overlap is worth");
  return group;
}

std::vector<stage::Policy> read_policies(const Options& options, int stages) {
  stage::Policy base;
  for (const std::string key : kKeys) {
    if (options.has(key)) {
      const auto value =
          key == "percent" ? fmt::format("{}", fmt::join(options.get<std::vector<Text>>(key), " "))
                           : options.text(key);
      set(base, key, value, "--" + key);
    }
  }
  if (!options.has("stage-policy")) {
    stage::validate(base);
    return {base};
  }
  auto policies = read_files(options.text("stage-policy"), base);
  if (policies.size() != 1 && policies.size() != static_cast<std::size_t>(stages)) {
    throw ConfigError(fmt::format("--stage-policy {}: {} policies for {} stages",
                                  options.text("stage-policy"), policies.size(), stages));
  }
  for (const auto& policy : policies) {
    stage::validate(policy);
  }
  return policies;
}

}  // namespace stagecoach::cli
